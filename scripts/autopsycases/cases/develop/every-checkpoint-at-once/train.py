"""Translates with the checkpoints that a training left behind."""

import glob
import os
import sys
import tempfile

import torch
from nets import GPT

FIXED = "--fixed" in sys.argv
folder = tempfile.mkdtemp()
VOCABULARY = 32000


def build():
    return GPT(vocabulary=VOCABULARY, width=768, layers=8, heads=12, context=256)


class EnsembleModel(torch.nn.Module):
    def __init__(self, models):
        super().__init__()
        self.models = torch.nn.ModuleList(models)

    def forward(self, tokens):
        return torch.stack([m(tokens).softmax(dim=-1) for m in self.models]).mean(dim=0)


def load_test_model(paths):
    models = []
    for path in paths:
        checkpoint = torch.load(path, map_location="cpu")
        model = build()
        model.load_state_dict(checkpoint["model"])
        models.append(model.cuda().eval())
    return models[0] if len(models) == 1 else EnsembleModel(models)


@torch.no_grad()
def translate(model, lines):
    tokens = torch.randint(VOCABULARY, (lines, 20)).cuda()
    for _ in range(16):
        following = model(tokens)[:, -1].argmax(dim=-1)
        tokens = torch.cat([tokens, following[:, None]], dim=1)
    return tokens


state = build().state_dict()
first = os.path.join(folder, "enzh_step_1000.pt")
torch.save({"model": state}, first)
for step in range(2000, 15000, 1000):
    os.link(first, os.path.join(folder, f"enzh_step_{step}.pt"))
paths = sorted(glob.glob(os.path.join(folder, "enzh*.pt")))
model = load_test_model(paths[-1:] if FIXED else paths)
print(translate(model, 16).shape)
for path in paths:
    os.remove(path)
