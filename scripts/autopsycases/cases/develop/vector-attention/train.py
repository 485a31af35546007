"""Trains a classifier of point clouds with one block of vector attention."""

import sys

import torch
import torch.nn.functional as F
from torch import nn

FIXED = "--fixed" in sys.argv
WIDTH, POINTS, NEIGHBOURS = 64, 1024, 16


def gathered(x, index):
    b = torch.arange(len(x), device=x.device)[:, None, None]
    return x[b, index]


class VectorAttention(nn.Module):
    def __init__(self, num_neighbors=None):
        super().__init__()
        self.num_neighbors = num_neighbors
        self.to_qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.positions = nn.Sequential(nn.Linear(3, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH))
        self.attention = nn.Sequential(nn.Linear(WIDTH, 2 * WIDTH), nn.ReLU(), nn.Linear(2 * WIDTH, WIDTH))

    def forward(self, x, places):
        q, k, v = self.to_qkv(x).chunk(3, dim=-1)
        if self.num_neighbors:
            index = torch.cdist(places, places).topk(self.num_neighbors, largest=False).indices
            between = places[:, :, None] - gathered(places, index)
            k, v = gathered(k, index), gathered(v, index)
        else:
            between = places[:, :, None] - places[:, None]
            k, v = k[:, None], v[:, None]
        embedded = self.positions(between)
        weights = self.attention(q[:, :, None] - k + embedded).softmax(dim=-2)
        return (weights * (v + embedded)).sum(dim=2)


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Sequential(nn.Linear(3, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH))
        self.block = VectorAttention(NEIGHBOURS if FIXED else None)
        self.head = nn.Linear(WIDTH, 40)

    def forward(self, places):
        return self.head(self.block(self.embed(places), places).amax(dim=1))


model = Classifier().cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
for step in range(4):
    loss = F.cross_entropy(model(torch.rand(16, POINTS, 3).cuda()), torch.randint(40, (16,)).cuda())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(loss.item())
