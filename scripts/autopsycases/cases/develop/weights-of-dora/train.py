"""Adapts a frozen language model with weight-decomposed low-rank adapters."""

import sys

import torch
import torch.nn.functional as F
from nets import GPT
from torch import nn

FIXED = "--fixed" in sys.argv
VOCABULARY, CONTEXT, RANK = 32_000, 512, 16


class DoRALinear(nn.Module):
    def __init__(self, base):
        super().__init__()
        self.weight, self.bias = base.weight, base.bias
        self.weight.requires_grad_(False)
        self.bias.requires_grad_(False)
        out, inner = base.weight.shape
        self.lora_a = nn.Parameter(torch.randn(RANK, inner) * 0.01)
        self.lora_b = nn.Parameter(torch.zeros(out, RANK))
        self.magnitude = nn.Parameter(torch.ones(out, 1))

    def forward(self, x):
        if FIXED:
            with torch.no_grad():
                norm = (self.weight + self.lora_b @ self.lora_a / RANK).norm(p=2, dim=1, keepdim=True)
            scale = (self.magnitude / norm).squeeze(1)
            y = F.linear(x, self.weight) + F.linear(F.linear(x, self.lora_a), self.lora_b) / RANK
            return scale * y + self.bias
        adapted = self.weight + torch.matmul(self.lora_b, self.lora_a) / RANK
        column_norm = adapted.norm(p=2, dim=1, keepdim=True)
        norm_adapted = adapted / column_norm
        calc_weights = self.magnitude * norm_adapted
        return F.linear(x, calc_weights, self.bias)


def replace(module):
    for name, child in module.named_children():
        if isinstance(child, nn.Linear):
            setattr(module, name, DoRALinear(child))
        else:
            replace(child)


with torch.device("cuda"):
    model = GPT(VOCABULARY, width=1536, layers=14, heads=12, context=CONTEXT)
    model.requires_grad_(False)
    replace(model.blocks)
optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-4)
for step in range(4):
    tokens = torch.randint(VOCABULARY, (1, CONTEXT + 1)).cuda()
    loss = F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())
