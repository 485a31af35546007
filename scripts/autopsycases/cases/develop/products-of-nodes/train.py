"""Matches the nodes of two knowledge graphs: each keeps its ten most similar partners."""

import sys

import torch
import torch.nn.functional as F
from torch import nn

FIXED = "--fixed" in sys.argv
SOURCES, TARGETS, WORDS, WIDTH, EDGES, K = 5000, 6000, 300, 256, 60_000, 10


class RelConv(nn.Module):
    def __init__(self, width, to):
        super().__init__()
        self.root, self.into, self.out = (nn.Linear(width, to) for _ in range(3))

    def mean(self, x, to, source):
        total = torch.zeros_like(x).index_add_(0, to, x[source])
        count = torch.zeros(len(x), 1, device=x.device).index_add_(
            0, to, torch.ones(len(to), 1, device=x.device)
        )
        return total / count.clamp(min=1)

    def forward(self, x, edges):
        source, target = edges
        return self.root(x) + self.mean(self.into(x), target, source) + self.mean(self.out(x), source, target)


class RelCNN(nn.Module):
    def __init__(self):
        super().__init__()
        self.convs = nn.ModuleList(RelConv(a, b) for a, b in ((WORDS, WIDTH), (WIDTH, WIDTH), (WIDTH, WIDTH)))

    def forward(self, x, edges):
        for conv in self.convs:
            x = F.relu(conv(x, edges))
        return x


class Matching(nn.Module):
    def __init__(self):
        super().__init__()
        self.network = RelCNN()

    def top_k(self, source, target):
        if FIXED:
            scores = source @ target.t()
        else:
            scores = (source.unsqueeze(1) * target.unsqueeze(0)).sum(dim=-1)
        return scores.topk(K, dim=1)

    def forward(self, source, source_edges, target, target_edges, pairs):
        h_source, h_target = self.network(source, source_edges), self.network(target, target_edges)
        scores, partners = self.top_k(h_source, h_target)
        known = (h_source[pairs[0]] * h_target[pairs[1]]).sum(dim=-1, keepdim=True)
        logits = torch.cat([known, scores[pairs[0]]], dim=1)
        return F.cross_entropy(logits, torch.zeros(len(logits), dtype=torch.long, device=logits.device))


model = Matching().cuda()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
source, target = torch.rand(SOURCES, WORDS).cuda(), torch.rand(TARGETS, WORDS).cuda()
source_edges = torch.randint(SOURCES, (2, EDGES)).cuda()
target_edges = torch.randint(TARGETS, (2, EDGES)).cuda()
pairs = torch.stack([torch.randint(SOURCES, (3000,)), torch.randint(TARGETS, (3000,))]).cuda()
for epoch in range(3):
    loss = model(source, source_edges, target, target_edges, pairs)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(epoch, loss.item())
