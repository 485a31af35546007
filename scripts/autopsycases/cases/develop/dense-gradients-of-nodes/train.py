"""Learns embeddings of the nodes of a large graph from pairs of walks (GATNE)."""

import sys

import torch
import torch.nn.functional as F
from torch import nn

FIXED = "--fixed" in sys.argv
NODES, WIDTH, TYPES, SMALL, NEIGHBOURS = 2_000_000, 200, 4, 10, 10


class GATNE(nn.Module):
    def __init__(self):
        super().__init__()
        self.nodes = nn.Embedding(NODES, WIDTH, sparse=FIXED)
        self.edges = nn.Embedding(NODES, TYPES * SMALL, sparse=FIXED)
        self.attention = nn.Sequential(nn.Linear(SMALL, 20), nn.Tanh(), nn.Linear(20, 1))
        self.up = nn.Linear(SMALL, WIDTH, bias=False)

    def forward(self, heads, neighbours):
        kinds = self.edges(neighbours).view(len(heads), NEIGHBOURS, TYPES, SMALL).mean(1)
        kinds = (self.attention(kinds).softmax(1) * kinds).sum(1)
        near = self.nodes(neighbours).mean(1)
        return F.normalize(self.nodes(heads) + near + self.up(kinds), dim=1)


class NSLoss(nn.Module):
    """Noise-contrastive: each pair against some nodes at random."""

    def __init__(self, sampled=5):
        super().__init__()
        self.sampled = sampled
        self.weights = nn.Embedding(NODES, WIDTH, sparse=FIXED)

    def forward(self, embeddings, tails):
        right = (embeddings * self.weights(tails)).sum(1)
        noise = torch.randint(NODES, (len(tails), self.sampled)).cuda()
        wrong = torch.bmm(self.weights(noise), embeddings[:, :, None]).squeeze(2)
        return -(F.logsigmoid(right) + F.logsigmoid(-wrong).sum(1)).mean()


with torch.device("cuda"):
    model, loss_function = GATNE(), NSLoss()
tables = [model.nodes.weight, model.edges.weight, loss_function.weights.weight]
dense = [*model.attention.parameters(), *model.up.parameters()]
if FIXED:
    optimizers = [torch.optim.SGD(tables, lr=0.1), torch.optim.Adam(dense)]
else:
    optimizers = [torch.optim.Adam(tables + dense, fused=True)]
for batch in range(4):
    heads, tails = torch.randint(NODES, (256,)).cuda(), torch.randint(NODES, (256,)).cuda()
    loss = loss_function(model(heads, torch.randint(NODES, (256, NEIGHBOURS)).cuda()), tails)
    for optimizer in optimizers:
        optimizer.zero_grad()
    loss.backward()
    for optimizer in optimizers:
        optimizer.step()
