"""Trains a graph network on samples of a large graph, with each node's degree among its features."""

import sys

import torch
import torch.nn.functional as F
from torch import nn

FIXED = "--fixed" in sys.argv
NODES, EDGES = 60_000, 600_000


def to_dense(edges, nodes):
    adjacency = torch.zeros(nodes * nodes, device=edges.device)
    adjacency.index_fill_(0, edges[0] * nodes + edges[1], 1.0)
    return adjacency.view(nodes, nodes)


def degrees(edges, nodes):
    if FIXED:
        ones = torch.ones(edges.shape[1], device=edges.device)
        return torch.zeros(nodes, device=edges.device).index_add_(0, edges[0], ones)
    return to_dense(edges, nodes).sum(dim=1)


class Convolution(nn.Module):
    """Each node gets the mean of its neighbours."""

    def __init__(self, width, to):
        super().__init__()
        self.own, self.others = nn.Linear(width, to), nn.Linear(width, to)

    def forward(self, x, edges):
        mean = torch.zeros_like(x).index_add_(0, edges[1], x[edges[0]])
        return F.relu(self.own(x) + self.others(mean))


class Network(nn.Module):
    def __init__(self, width=256, classes=40):
        super().__init__()
        self.layers = nn.ModuleList([Convolution(129, width), Convolution(width, width)])
        self.head = nn.Linear(width, classes)

    def forward(self, x, edges):
        for layer in self.layers:
            x = layer(x, edges)
        return self.head(x)


model = Network().cuda()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(4):
    features = torch.rand(NODES, 128).cuda()
    edges = torch.randint(NODES, (2, EDGES)).cuda()
    x = torch.cat([features, degrees(edges, NODES)[:, None]], dim=1)
    loss = F.cross_entropy(model(x, edges), torch.randint(40, (NODES,)).cuda())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
