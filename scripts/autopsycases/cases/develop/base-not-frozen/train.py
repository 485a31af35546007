"""Trains adapters of a language model in half precision; the optimizer has the adapters alone."""

import sys

import torch
import torch.nn.functional as F
from nets import GPT
from torch import nn

FIXED = "--fixed" in sys.argv


class LoraLinear(nn.Module):
    def __init__(self, base, rank=8):
        super().__init__()
        self.base = base
        self.lora_a = nn.Linear(base.in_features, rank, bias=False)
        self.lora_b = nn.Linear(rank, base.out_features, bias=False)

    def forward(self, x):
        return self.base(x) + self.lora_b(self.lora_a(x))


torch.set_default_dtype(torch.float16)  # as the checkpoint has them
with torch.device("cuda"):
    model = GPT(vocabulary=32000, width=2048, layers=8, heads=16)
    if FIXED:
        model.requires_grad_(False)
    adapters = []
    for block in model.blocks:
        block.attention.qkv = LoraLinear(block.attention.qkv)
        block.attention.out = LoraLinear(block.attention.out)
        for layer in (block.attention.qkv, block.attention.out):
            adapters += [*layer.lora_a.parameters(), *layer.lora_b.parameters()]
optimizer = torch.optim.AdamW(adapters, lr=1e-4)
for step in range(4):
    tokens = torch.randint(32000, (1, 512)).cuda()
    logits = model(tokens)[:, :-1].float()
    loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
