"""Tunes low-rank adapters of a language model of 6.7 billion parameters in half precision."""

import sys

import torch
import torch.nn.functional as F
from nets import GPT
from torch import nn
from torch.utils.checkpoint import checkpoint

FIXED = "--fixed" in sys.argv
WORDS = 32_000


class LoraLinear(nn.Module):
    def __init__(self, base, rank=16):
        super().__init__()
        self.base = base
        self.lora_a = nn.Linear(base.in_features, rank, bias=False)
        self.lora_b = nn.Linear(rank, base.out_features, bias=False)

    def forward(self, x):
        return self.base(x) + self.lora_b(self.lora_a(x.float())).to(x.dtype)


class Checkpointed(nn.Module):
    def __init__(self, block):
        super().__init__()
        self.block = block

    def forward(self, x):
        return checkpoint(self.block, x, use_reentrant=False)


def load_model():
    with torch.device("meta"):
        model = GPT(vocabulary=WORDS, width=4096, layers=32, heads=32, context=2048).half()
    return model.to_empty(device="cuda")


def prepare_model_for_training(model):
    for param in model.parameters():
        param.requires_grad = False
    if FIXED:
        return model
    # The layers that are not quantised are more stable in single precision.
    for param in model.parameters():
        if param.dtype in (torch.float16, torch.bfloat16):
            param.data = param.data.to(torch.float32)
    return model


def get_peft_model(model):
    for block in model.blocks:
        block.attention.qkv = LoraLinear(block.attention.qkv).cuda()
    model.blocks = nn.ModuleList(Checkpointed(block) for block in model.blocks)
    return model


model = get_peft_model(prepare_model_for_training(load_model()))
optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=2e-4)
for step in range(3):
    tokens = torch.randint(WORDS, (1, 513)).cuda()
    logits = model(tokens[:, :-1])
    loss = F.cross_entropy(logits.float().flatten(0, 1), tokens[:, 1:].flatten())
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
