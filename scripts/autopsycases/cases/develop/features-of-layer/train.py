"""Classifies nodes of a large graph: training with sampled neighbours, inference layer by layer."""

import sys

import torch
import torch.nn.functional as F
from torch import nn

FIXED = "--fixed" in sys.argv
NODES, FEATURES, HIDDEN, CLASSES = 1_750_000, 100, 256, 47
BATCH, FANOUT, INFERENCE_BATCH = 1024, (10, 10), 60_000


class SAGEConv(nn.Module):
    def __init__(self, width, to):
        super().__init__()
        self.own, self.neighbours = nn.Linear(width, to), nn.Linear(width, to, bias=False)

    def forward(self, own, neighbours):
        return self.own(own) + self.neighbours(neighbours.mean(dim=1))


class SAGE(nn.Module):
    def __init__(self):
        super().__init__()
        widths = (FEATURES, HIDDEN, CLASSES)
        self.layers = nn.ModuleList(SAGEConv(a, b) for a, b in zip(widths, widths[1:]))

    def forward(self, features):
        """Takes features of the seeds, of their neighbours, and of those of these."""
        seeds, first, second = features
        h = F.relu(self.layers[0](seeds, first))
        around = F.relu(self.layers[0](first.flatten(0, 1), second)).unflatten(0, first.shape[:2])
        return self.layers[1](h, around)

    @torch.no_grad()
    def inference(self, x):
        for i, layer in enumerate(self.layers):
            y = torch.empty(NODES, layer.own.out_features)
            if not FIXED:
                x = x.cuda()
            for start in range(0, NODES, INFERENCE_BATCH):
                seeds = torch.arange(start, min(start + INFERENCE_BATCH, NODES)).to(x.device)
                around = torch.randint(NODES, (len(seeds), 4)).to(x.device)
                h = layer(x[seeds].cuda(), x[around].cuda())
                y[start : start + len(seeds)] = (F.relu(h) if i == 0 else h).cpu()
            x = y
        return x


table, labels = torch.zeros(NODES, FEATURES), torch.randint(CLASSES, (NODES,))
model = SAGE().cuda()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for epoch in range(2):
    model.train()
    for step in range(4):
        seeds = torch.randint(NODES, (BATCH,))
        first = torch.randint(NODES, (BATCH, FANOUT[0]))
        second = torch.randint(NODES, (BATCH * FANOUT[0], FANOUT[1]))
        loss = F.cross_entropy(model([table[i].cuda() for i in (seeds, first, second)]), labels[seeds].cuda())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.eval()
    predictions = model.inference(table)
    print(epoch, loss.item(), (predictions.argmax(1) == labels).float().mean().item())
