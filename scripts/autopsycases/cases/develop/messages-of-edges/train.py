"""Trains a graph convolution whose messages are made edge by edge."""

import sys

import torch
import torch.nn.functional as F
from torch import nn

FIXED = "--fixed" in sys.argv
NODES, EDGES, WIDTH = 14_049, 9_075_063, 200


class GCNConv(nn.Module):
    """Sums the neighbours' features: by gather and scatter."""

    def __init__(self, a, b):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(a, b))

    def message(self, x_j, norm):
        return norm.view(-1, 1) * x_j

    def forward(self, x, edges, norm):
        x = x @ self.weight if x is not None else self.weight
        messages = self.message(x.index_select(0, edges[1]), norm)
        return torch.zeros(NODES, x.shape[1], device=x.device).index_add(0, edges[0], messages)


class GCN(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = GCNConv(NODES, WIDTH), GCNConv(WIDTH, 64)

    def forward(self, edges, norm):
        return self.second(F.relu(self.first(None, edges, norm)), edges, norm)


edges, norm = torch.randint(NODES, (2, EDGES)).cuda(), torch.rand(EDGES).cuda()
labels = torch.randint(64, (NODES,)).cuda()
net = GCN().cuda()
optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
for epoch in range(3):
    if FIXED:
        chosen = torch.randint(EDGES, (EDGES // 10,)).cuda()
        loss = F.cross_entropy(net(edges[:, chosen], norm[chosen]), labels)
    else:
        loss = F.cross_entropy(net(edges, norm), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(epoch)
