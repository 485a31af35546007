"""Evaluates many adapters of one language model, one after the other."""

import os
import sys
import tempfile

import torch
import torch.nn.functional as F
from nets import GPT
from torch import nn

FIXED = "--fixed" in sys.argv
WIDTH, LAYERS, VOCABULARY, RANK = 2048, 16, 32_000, 64


class LoraLinear(nn.Module):
    """A linear layer with any number of adapters by name, one of which is active."""

    def __init__(self, base):
        super().__init__()
        self.base, self.active = base, None
        self.lora_A, self.lora_B = nn.ModuleDict(), nn.ModuleDict()

    def update_layer(self, name, rank):
        device = self.base.weight.device
        self.lora_A[name] = nn.Linear(self.base.in_features, rank, bias=False).to(device)
        self.lora_B[name] = nn.Linear(rank, self.base.out_features, bias=False).to(device)
        self.active = name

    def delete_adapter(self, name):
        del self.lora_A[name], self.lora_B[name]

    def forward(self, x):
        y = self.base(x)
        if self.active in self.lora_A:
            y = y + self.lora_B[self.active](self.lora_A[self.active](x.float())).to(y.dtype)
        return y


class PeftModel(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model.requires_grad_(False)
        for block in model.blocks:
            block.attention.qkv, block.attention.out = (
                LoraLinear(m) for m in (block.attention.qkv, block.attention.out)
            )
            block.mlp[0], block.mlp[2] = LoraLinear(block.mlp[0]), LoraLinear(block.mlp[2])

    def layers(self):
        return [m for m in self.modules() if isinstance(m, LoraLinear)]

    def load_adapter(self, path, name):
        for layer in self.layers():
            layer.update_layer(name, RANK)
        weights = torch.load(path, map_location="cpu")
        self.load_state_dict({k.replace("default", name): v for k, v in weights.items()}, strict=False)

    def delete_adapter(self, name):
        for layer in self.layers():
            layer.delete_adapter(name)

    def forward(self, tokens):
        return self.model(tokens)


@torch.no_grad()
def evaluate(model, batches):
    model.eval()
    losses = []
    for tokens in batches:
        tokens = tokens.cuda()
        logits = model(tokens[:, :-1])
        losses.append(F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten()).item())
    return sum(losses) / len(losses)


def trained_adapter(model, folder):
    for layer in model.layers():
        layer.update_layer("default", RANK)
    path = os.path.join(folder, "adapter.pt")
    torch.save({k: v for k, v in model.state_dict().items() if ".default." in k}, path)
    model.delete_adapter("default")
    return path


with tempfile.TemporaryDirectory() as folder:
    base = GPT(VOCABULARY, WIDTH, LAYERS, 16, context=1024).half()
    peft_model = PeftModel(base)
    path = trained_adapter(peft_model, folder)
    peft_model.cuda()
    batches = [torch.randint(VOCABULARY, (4, 513)) for _ in range(3)]
    for i in range(24):
        name = f"adapter_{i}"
        peft_model.load_adapter(path, name)
        print(name, evaluate(peft_model, batches))
        if FIXED:
            peft_model.delete_adapter(name)
