"""Continual learning: each task adds low-rank adapters to a frozen vision transformer."""

import copy
import sys

import torch
import torch.nn.functional as F
from nets import Block
from torch import nn

FIXED = "--fixed" in sys.argv
WIDTH = 768


class ViT(nn.Module):
    def __init__(self, layers=12):
        super().__init__()
        self.patches = nn.Conv2d(3, WIDTH, 16, 16)
        self.blocks = nn.ModuleList(Block(WIDTH, 12, causal=False) for _ in range(layers))
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, images):
        x = self.patches(images).flatten(2).transpose(1, 2)
        for block in self.blocks:
            x = block(x)
        return self.norm(x).mean(1)


class Adapted(nn.Module):
    """A linear layer and a product of two thin matrices for each task."""

    def __init__(self, linear, rank=10):
        super().__init__()
        self.linear, self.rank, self.tasks = linear, rank, nn.ModuleList()

    def add_task(self):
        for p in self.tasks.parameters():
            p.requires_grad_(False)
        a = nn.Linear(self.linear.in_features, self.rank, bias=False)
        b = nn.Linear(self.rank, self.linear.out_features, bias=False)
        self.tasks.append(nn.Sequential(a, b).cuda())

    def forward(self, x):
        return self.linear(x) + sum(task(x) for task in self.tasks)


class Learner:
    def __init__(self):
        self.network = ViT().cuda().requires_grad_(False)
        self.old = []
        for block in self.network.blocks:
            block.attention.qkv = Adapted(block.attention.qkv)

    def update_network(self):
        before = copy.deepcopy(self.network)
        if not FIXED:
            self.old.append(before)
        for block in self.network.blocks:
            block.attention.qkv.add_task()

    def train(self, classes=20, steps=3):
        self.update_network()
        head = nn.Linear(WIDTH, classes).cuda()
        params = [p for p in self.network.parameters() if p.requires_grad]
        optimizer = torch.optim.SGD([*params, *head.parameters()], lr=0.01, momentum=0.9)
        for _ in range(steps):
            images, labels = torch.rand(32, 3, 224, 224).cuda(), torch.randint(classes, (32,)).cuda()
            loss = F.cross_entropy(head(self.network(images)), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


learner = Learner()
for task in range(10):
    learner.train()
    print("task", task)
