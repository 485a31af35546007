"""Fine-tunes a classifier with adapters on each fold of a cross validation."""

import functools
import sys

import torch
import torch.nn.functional as F
from nets import Encoder
from torch import nn

FIXED = "--fixed" in sys.argv
FOLDS, STEPS, RANK = 5, 4, 16


class LoRALinear(nn.Module):
    def __init__(self, base):
        super().__init__()
        self.base = base
        self.lora_a = nn.Linear(base.in_features, RANK, bias=False)
        self.lora_b = nn.Linear(RANK, base.out_features, bias=False)

    def adapter_params(self):
        return ["lora_a.weight", "lora_b.weight"]

    def forward(self, x):
        return self.base(x) + self.lora_b(self.lora_a(x))


def _adapter_params(model):
    params = {}
    for name, module in model.named_modules():
        if hasattr(module, "adapter_params"):
            chosen = module.adapter_params()
            params |= {f"{name}.{n}": p for n, p in module.named_parameters() if n in chosen}
    return params


get_adapter_params = _adapter_params if FIXED else functools.lru_cache()(_adapter_params)


def set_trainable_params(model):
    chosen = get_adapter_params(model)
    for name, p in model.named_parameters():
        p.requires_grad_(name in chosen)


def setup_model():
    model = Encoder(width=1024, layers=24, heads=16, classes=3)
    for block in model.blocks:
        block.attention.qkv = LoRALinear(block.attention.qkv)
        block.attention.out = LoRALinear(block.attention.out)
    model.cuda()
    set_trainable_params(model)
    return model


def train_fold(fold):
    model = setup_model()
    optimizer = torch.optim.AdamW(get_adapter_params(model).values(), lr=2e-4)
    for step in range(STEPS):
        tokens = torch.randint(30522, (4, 128)).cuda()
        labels = torch.randint(3, (4,)).cuda()
        loss = F.cross_entropy(model(tokens), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    print(fold, loss.item())


for fold in range(FOLDS):
    train_fold(fold)
