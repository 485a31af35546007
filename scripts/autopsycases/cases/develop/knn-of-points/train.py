"""Segments scans of rooms with a graph network that finds neighbours anew in every layer."""

import sys

import torch
from torch import nn

FIXED = "--fixed" in sys.argv


def pairwise_distance(x):
    inner = -2 * torch.matmul(x, x.transpose(2, 1))
    square = torch.sum(torch.mul(x, x), dim=-1, keepdim=True)
    return square + inner + square.transpose(2, 1)


def dense_knn_matrix(x, k=16):
    with torch.no_grad():
        x = x.transpose(2, 1).squeeze(-1)
        if FIXED:
            parts = [torch.cdist(p, x).topk(k, largest=False)[1] for p in x.split(2048, dim=1)]
            return torch.cat(parts, dim=1)
        return torch.topk(-pairwise_distance(x.detach()), k=k)[1]


class EdgeConv(nn.Module):
    def __init__(self, a, b):
        super().__init__()
        self.nn = nn.Sequential(nn.Conv2d(2 * a, b, 1), nn.BatchNorm2d(b), nn.ReLU())

    def forward(self, x):
        index = dense_knn_matrix(x)
        points = x.squeeze(-1).transpose(2, 1)
        near = points[torch.arange(len(points), device=x.device)[:, None, None], index]
        own = points[:, :, None].expand_as(near)
        edges = torch.cat([own, near - own], dim=-1).permute(0, 3, 1, 2)
        return self.nn(edges).max(dim=-1, keepdim=True)[0]


class DenseDeepGCN(nn.Module):
    def __init__(self):
        super().__init__()
        widths = [9] + [64] * 5
        self.layers = nn.ModuleList(EdgeConv(a, b) for a, b in zip(widths, widths[1:]))
        self.head = nn.Conv2d(64, 13, 1)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


model = DenseDeepGCN().cuda().eval()
with torch.no_grad():
    for points in (4096, 8192, 30000):
        print(model(torch.rand(1, 9, points, 1).cuda()).shape)
