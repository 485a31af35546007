"""Searches an architecture as DARTS does: each edge of a cell computes all operations and mixes them."""

import sys

import torch
import torch.nn.functional as F
from torch import nn

FIXED = "--fixed" in sys.argv
BATCH = 16 if FIXED else 64
CHANNELS, CELLS, NODES = 16, 8, 4


def convolution(channels, size, dilation=1):
    pad = dilation * (size - 1) // 2
    return nn.Sequential(
        nn.ReLU(),
        nn.Conv2d(channels, channels, size, padding=pad, dilation=dilation, groups=channels, bias=False),
        nn.Conv2d(channels, channels, 1, bias=False),
        nn.BatchNorm2d(channels, affine=False),
    )


class Mixed(nn.Module):
    """All operations of one edge, weighted."""

    def __init__(self, channels):
        super().__init__()
        self.operations = nn.ModuleList(
            [
                nn.Sequential(nn.MaxPool2d(3, 1, 1), nn.BatchNorm2d(channels, affine=False)),
                nn.Sequential(nn.AvgPool2d(3, 1, 1), nn.BatchNorm2d(channels, affine=False)),
                nn.Identity(),
                nn.Sequential(convolution(channels, 3), convolution(channels, 3)),
                nn.Sequential(convolution(channels, 5), convolution(channels, 5)),
                convolution(channels, 3, 2),
                convolution(channels, 5, 2),
            ]
        )

    def forward(self, x, weights):
        return sum(w * operation(x) for w, operation in zip(weights, self.operations))


class Cell(nn.Module):
    def __init__(self, inputs, channels):
        super().__init__()
        self.reduce = nn.ModuleList(nn.Conv2d(c, channels, 1, bias=False) for c in inputs)
        self.edges = nn.ModuleList(Mixed(channels) for i in range(NODES) for _ in range(2 + i))

    def forward(self, before, last, weights):
        states = [self.reduce[0](before), self.reduce[1](last)]
        k = 0
        for _ in range(NODES):
            total = 0
            for state in states:
                total = total + self.edges[k](state, weights[k])
                k += 1
            states.append(total)
        return torch.cat(states[-NODES:], dim=1)


class Supernet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 3 * CHANNELS, 3, padding=1, bias=False), nn.BatchNorm2d(48))
        self.cells, inputs, channels = nn.ModuleList(), [48, 48], CHANNELS
        for i in range(CELLS):
            if i in (CELLS // 3, 2 * CELLS // 3):
                channels *= 2
            self.cells.append(Cell(inputs, channels))
            inputs = [inputs[1], NODES * channels]
        self.classifier = nn.Linear(inputs[1], 10)
        edges = sum(2 + i for i in range(NODES))
        self.alphas = nn.Parameter(1e-3 * torch.randn(edges, 7))

    def forward(self, images):
        before = last = self.stem(images)
        weights = F.softmax(self.alphas, dim=-1)
        for i, cell in enumerate(self.cells):
            if i in (CELLS // 3, 2 * CELLS // 3):
                before, last = F.avg_pool2d(before, 2), F.avg_pool2d(last, 2)
            before, last = last, cell(before, last, weights)
        return self.classifier(last.mean(dim=(2, 3)))


model = Supernet().cuda()
weights = [p for name, p in model.named_parameters() if name != "alphas"]
optimizer = torch.optim.SGD(weights, lr=0.025, momentum=0.9, weight_decay=3e-4)
architect = torch.optim.Adam([model.alphas], lr=3e-4)
for step in range(4):
    for chosen in (architect, optimizer):
        images, labels = torch.rand(BATCH, 3, 32, 32).cuda(), torch.randint(10, (BATCH,)).cuda()
        model.zero_grad()
        F.cross_entropy(model(images), labels).backward()
        chosen.step()
    print(step)
