"""Tunes low-rank adapters of a language model whose weights stay as they are."""

import sys

import torch
import torch.nn.functional as F
from nets import GPT
from torch import nn
from torch.utils.checkpoint import checkpoint

FIXED = "--fixed" in sys.argv
WORDS = 16_000


class LoraLinear(nn.Module):
    """A linear layer that is frozen, and two small ones beside it that are trained."""

    def __init__(self, base, rank=8):
        super().__init__()
        self.base = base
        self.lora_a = nn.Linear(base.in_features, rank, bias=False)
        self.lora_b = nn.Linear(rank, base.out_features, bias=False)
        self.dropout = nn.Dropout(0.05)

    def forward(self, x):
        return self.base(x) + self.lora_b(self.lora_a(self.dropout(x)))


class Checkpointed(nn.Module):
    def __init__(self, block):
        super().__init__()
        self.block = block

    def forward(self, x):
        return checkpoint(self.block, x, use_reentrant=False)


def get_peft_model(model):
    model.requires_grad_(False)
    for block in model.blocks:
        block.attention.qkv = LoraLinear(block.attention.qkv)
        block.mlp[0] = LoraLinear(block.mlp[0])
    if FIXED:
        model.blocks = nn.ModuleList(Checkpointed(block) for block in model.blocks)
    return model


def train(model, optimizer, steps=3):
    model.train()
    for step in range(steps):
        tokens = torch.randint(WORDS, (8, 513)).cuda()
        loss = F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(step, loss.item())


model = get_peft_model(GPT(vocabulary=WORDS, width=768, layers=12, heads=12, context=512)).cuda()
train(model, torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=3e-4))
