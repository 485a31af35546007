"""Fine-tunes a frozen language model with adapters on conversations of any length."""

import sys

import torch
import torch.nn.functional as F
from nets import GPT
from torch import nn

FIXED = "--fixed" in sys.argv
MAX_LENGTH = 512
LENGTHS = (310, 482, 205, 390, 511, 450, 298, 330, 476, 140, 3900, 280)


class LoRA(nn.Module):
    def __init__(self, base, rank=16):
        super().__init__()
        self.base = base
        self.a = nn.Linear(base.in_features, rank, bias=False)
        self.b = nn.Linear(rank, base.out_features, bias=False)
        nn.init.zeros_(self.b.weight)

    def forward(self, x):
        return self.base(x) + self.b(self.a(x))


def with_adapters(model):
    model.requires_grad_(False)
    for block in model.blocks:
        block.attention.qkv, block.attention.out = LoRA(block.attention.qkv), LoRA(block.attention.out)
        block.mlp[0], block.mlp[2] = LoRA(block.mlp[0]), LoRA(block.mlp[2])
    return model


def collate(length):
    if FIXED:
        length = min(length, MAX_LENGTH)
    return torch.randint(32000, (1, length))


model = with_adapters(GPT(32000, width=2048, layers=16, heads=16, context=4096)).cuda().train()
trained = [p for p in model.parameters() if p.requires_grad]
optimizer = torch.optim.AdamW(trained, lr=2e-4)
for step, length in enumerate(LENGTHS):
    tokens = collate(length).cuda()
    logits = model(tokens)
    loss = F.cross_entropy(logits[0, :-1], tokens[0, 1:])
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(step, length, loss.item())
