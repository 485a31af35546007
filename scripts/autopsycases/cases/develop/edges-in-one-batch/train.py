"""Learns to track people: each batch joins the graphs of several videos, whose sizes differ."""

import sys

import torch
import torch.nn.functional as F
from torch import nn

FIXED = "--fixed" in sys.argv
MAX_EDGES, WIDTH = 150_000, 64
SIZES = [30_000, 24_000, 41_000, 18_000, 36_000, 28_000, 33_000, 22_000] * 3 + [
    150_000,
    140_000,
    120_000,
    95_000,
]


def mlp(a, *widths):
    layers = []
    for b in widths:
        layers += [nn.Linear(a, b), nn.ReLU()]
        a = b
    return nn.Sequential(*layers)


class MetaLayer(nn.Module):
    def __init__(self):
        super().__init__()
        self.edge, self.node = mlp(6 * WIDTH, 160, WIDTH), mlp(3 * WIDTH, 112, WIDTH)

    def forward(self, x, edges, start_x, start_edges, at):
        a, b = at
        both = torch.cat([x, start_x], dim=1)
        edges = self.edge(torch.cat([both[a], both[b], edges, start_edges], dim=1))
        messages = self.node(torch.cat([both[a], edges], dim=1))
        return torch.zeros_like(x).index_add(0, b, messages), edges


class MOTMPNet(nn.Module):
    def __init__(self, steps=12):
        super().__init__()
        self.nodes, self.edges, self.steps = mlp(256, 128, WIDTH), mlp(6, 18, WIDTH), steps
        self.layer, self.classifier = MetaLayer(), nn.Sequential(mlp(WIDTH, 32), nn.Linear(32, 1))

    def forward(self, x, edge_attr, at):
        start_x, start_edges = self.nodes(x), self.edges(edge_attr)
        x, edges, outputs = start_x, start_edges, []
        for _ in range(self.steps):
            x, edges = self.layer(x, edges, start_x, start_edges, at)
            outputs.append(self.classifier(edges)[:, 0])
        return outputs


def graph_of(edges):
    nodes = edges // 40
    return torch.randn(nodes, 256), torch.randn(edges, 6), torch.randint(nodes, (2, edges))


def collate(graphs):
    """Joins graphs; with the fix, only as many as keep the number of edges below a limit."""
    if FIXED:
        total, kept = 0, []
        for g in graphs:
            total += g[2].shape[1]
            if kept and total > MAX_EDGES:
                break
            kept.append(g)
        graphs = kept
    at, first = [], 0
    for x, _, edges in graphs:
        at.append(edges + first)
        first += len(x)
    return torch.cat([g[0] for g in graphs]), torch.cat([g[1] for g in graphs]), torch.cat(at, dim=1)


model = MOTMPNet().cuda()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(0, len(SIZES), 4):
    x, edge_attr, at = (t.cuda() for t in collate([graph_of(n) for n in SIZES[step : step + 4]]))
    labels = torch.randint(2, (at.shape[1],), device="cuda").float()
    loss = sum(F.binary_cross_entropy_with_logits(y, labels) for y in model(x, edge_attr, at))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, at.shape[1], loss.item())
