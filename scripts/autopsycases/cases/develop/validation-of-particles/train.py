"""Trains a network that reconstructs the particles of collisions, and validates on larger batches."""

import sys

import torch
import torch.nn.functional as F
from nets import Block
from torch import nn

FIXED = "--fixed" in sys.argv
ELEMENTS, FEATURES, CLASSES = 2048, 42, 8


class MLPF(nn.Module):
    def __init__(self, width=256, layers=3):
        super().__init__()
        self.embed = nn.Sequential(nn.Linear(FEATURES, width), nn.ELU(), nn.Linear(width, width))
        self.conv_id = nn.ModuleList(Block(width, 8, causal=False) for _ in range(layers))
        self.conv_reg = nn.ModuleList(Block(width, 8, causal=False) for _ in range(layers))
        self.kind = nn.Linear(width, CLASSES)
        self.momentum = nn.Linear(width + CLASSES, 5)

    def forward(self, x):
        a = b = self.embed(x)
        for block in self.conv_id:
            a = block(a)
        kind = self.kind(a)
        for block in self.conv_reg:
            b = block(b)
        return kind, self.momentum(torch.cat([b, kind], dim=-1))


def loss_of(model, batch):
    x = torch.rand(batch, ELEMENTS, FEATURES).cuda()
    kind, momentum = model(x)
    classes = torch.randint(CLASSES, (batch, ELEMENTS)).cuda()
    loss = {"Classification": F.cross_entropy(kind.flatten(0, 1), classes.flatten())}
    loss["Regression"] = F.huber_loss(momentum, torch.rand_like(momentum))
    loss["Total"] = sum(loss.values())
    return loss


def train_and_valid(model, optimizer, is_train, steps, batch):
    epoch_loss = {}
    model.train(is_train)
    for _ in range(steps):
        if is_train:
            loss = loss_of(model, batch)
            optimizer.zero_grad()
            loss["Total"].backward()
            optimizer.step()
        else:
            with torch.set_grad_enabled(not FIXED):
                loss = loss_of(model, batch)
        for name, value in loss.items():
            epoch_loss[name] = epoch_loss.get(name, 0.0) + value.item()
    return epoch_loss


model = MLPF().cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
for epoch in range(2):
    print(train_and_valid(model, optimizer, True, 6, 2))
    print(train_and_valid(model, optimizer, False, 4, 16))
