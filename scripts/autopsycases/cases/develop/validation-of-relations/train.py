"""Learns to predict links: trains on sampled parts of a knowledge graph and validates on all of it."""

import contextlib
import sys

import torch
import torch.nn.functional as F
from torch import nn

FIXED = "--fixed" in sys.argv
NODES, RELATIONS, EDGES = 14_541, 474, 1_600_000


class RelGraphConv(nn.Module):
    """Block-diagonal weights per relation."""

    def __init__(self, width, bases=50):
        super().__init__()
        self.size, self.bases = width // bases, bases
        self.weight = nn.Parameter(torch.rand(RELATIONS, bases * self.size * self.size))
        self.loop_weight = nn.Linear(width, width)

    def forward(self, h, src, dst, etypes):
        msg = self.bdd_message_func(h[src], etypes)
        return torch.zeros_like(h).index_add(0, dst, msg) + self.loop_weight(h)

    def bdd_message_func(self, h_src, etypes):
        weight = self.weight[etypes].view(-1, self.size, self.size)
        return torch.bmm(h_src.reshape(-1, 1, self.size), weight).view(len(h_src), -1)


class LinkPredict(nn.Module):
    def __init__(self, width=100):
        super().__init__()
        self.embedding = nn.Embedding(NODES, width)
        self.layers = nn.ModuleList(RelGraphConv(width) for _ in range(2))
        self.w_relation = nn.Parameter(torch.rand(RELATIONS, width))

    def forward(self, nodes, src, dst, etypes):
        h = self.embedding(nodes)
        for layer in self.layers:
            h = F.relu(layer(h, src, dst, etypes))
        return h

    def get_loss(self, embed, triplets, labels):
        s, r, o = triplets.T
        score = (embed[s] * self.w_relation[r] * embed[o]).sum(dim=1)
        return F.binary_cross_entropy_with_logits(score, labels) + 0.01 * embed.pow(2).mean()


def graph(nodes, edges):
    src, dst = torch.randint(nodes, (2, edges)).cuda()
    return torch.arange(nodes).cuda(), src, dst, torch.randint(RELATIONS, (edges,)).cuda()


def evaluate(model):
    model.eval()
    nodes, src, dst, etypes = graph(NODES, EDGES)
    with torch.no_grad() if FIXED else contextlib.nullcontext():
        embed = model(nodes, src, dst, etypes)
        mrr = 0.0
        for s, r in zip(torch.randint(NODES, (20, 100)), torch.randint(RELATIONS, (20, 100))):
            scores = torch.sigmoid((embed[s.cuda()] * model.w_relation[r.cuda()]) @ embed.T)
            mrr += (1.0 / (1 + (scores > scores[:, :1]).sum(dim=1))).mean().item() / 20
    return mrr


model = LinkPredict().cuda()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for epoch in range(12):
    model.train()
    nodes, src, dst, etypes = graph(9000, 30_000)
    triplets = torch.stack([src, etypes, dst], dim=1).repeat(11, 1)
    labels = torch.zeros(len(triplets), device="cuda")
    loss = model.get_loss(model(nodes, src, dst, etypes), triplets, labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(epoch, loss.item())
    if epoch % 6 == 5:
        print("MRR", evaluate(model))
