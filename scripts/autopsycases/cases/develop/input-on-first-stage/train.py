"""Scores texts with a language model whose layers are on two GPUs; the head is on the first."""

import sys

import torch
import torch.nn.functional as F
from nets import GPT

FIXED = "--fixed" in sys.argv
FIRST = 12 if FIXED else 24

with torch.device("meta"):
    model = GPT(vocabulary=128000, width=3072, layers=36, heads=24, context=2048).to(torch.float16).eval()
for module in (model.tokens, model.positions, model.norm, model.head):
    module.to_empty(device="cuda:0")
for i, block in enumerate(model.blocks):
    block.to_empty(device="cuda:0" if i < FIRST else "cuda:1")


@torch.no_grad()
def score(tokens):
    x = model.tokens(tokens) + model.positions(torch.arange(tokens.shape[1], device=tokens.device))
    for i, block in enumerate(model.blocks):
        x = block(x if i != FIRST else x.to("cuda:1"))
    logits = model.head(model.norm(x.to("cuda:0")))
    return F.log_softmax(logits.float(), dim=-1).gather(-1, tokens.unsqueeze(-1)).sum()


total = 0.0
for length in (256, 512, 768, 1024, 1280, 1536):
    total += score(torch.randint(128000, (4, length)).to("cuda:0")).item()
    print(length, total)
