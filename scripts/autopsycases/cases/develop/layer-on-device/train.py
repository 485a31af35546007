"""Computes embeddings of all nodes of a graph layer by layer, in batches of nodes."""

import sys

import torch
import torch.nn.functional as F
from torch import nn

FIXED = "--fixed" in sys.argv
NODES, NEIGHBOURS, BATCH, WIDTH = 900_000, 5, 20_000, 512


class Layer(nn.Module):
    def __init__(self, width, to):
        super().__init__()
        self.own, self.others = nn.Linear(width, to), nn.Linear(width, to, bias=False)

    def forward(self, own, others):
        return F.relu(self.own(own) + self.others(others.mean(dim=1)))


layers = nn.ModuleList([Layer(128, WIDTH), Layer(WIDTH, WIDTH), Layer(WIDTH, 64)]).cuda().eval()


def inference(features):
    x = features
    for layer in layers:
        if not FIXED:
            x = x.to("cuda")
        y = torch.empty(NODES, layer.own.out_features)
        for start in range(0, NODES, BATCH):
            nodes = torch.arange(start, start + BATCH)
            neighbours = torch.randint(NODES, (BATCH, NEIGHBOURS))
            own, others = x[nodes.to(x.device)].cuda(), x[neighbours.to(x.device)].cuda()
            y[start : start + BATCH] = layer(own, others).cpu()
        x = y
    return x


with torch.no_grad():
    print(inference(torch.empty(NODES, 128)).shape)
