"""Runs a sparse convolution over a point cloud: where its points are is looked up in a dense grid."""

import sys

import torch
from torch import nn

FIXED = "--fixed" in sys.argv
SHAPE = (1250, 750, 50) if FIXED else (5000, 3000, 200)


class SubMConv3d(nn.Module):
    """Features stay where points are; neighbours come from a table of the whole grid."""

    def __init__(self, channels, to, shape):
        super().__init__()
        self.shape = shape
        self.weight = nn.Parameter(torch.rand(27, channels, to) / channels)

    def indice_pairs(self, places):
        volume = self.shape[0] * self.shape[1] * self.shape[2]
        grid = torch.full((volume,), -1, dtype=torch.int32, device=places.device)
        flat = (places[:, 0] * self.shape[1] + places[:, 1]) * self.shape[2] + places[:, 2]
        grid[flat] = torch.arange(len(places), dtype=torch.int32, device=places.device)
        around = torch.arange(27, device=places.device) - 13
        return grid[(flat[:, None] + around).clamp(0, volume - 1)]

    def forward(self, features, places):
        pairs = self.indice_pairs(places).clamp(0, len(features) - 1).long()
        return torch.einsum("nkc,kco->no", features[pairs], self.weight)


class Backbone(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(SubMConv3d(a, b, SHAPE) for a, b in ((4, 16), (16, 16), (16, 32)))
        self.norms = nn.ModuleList(nn.BatchNorm1d(n) for n in (16, 16, 32))

    def forward(self, features, places):
        for layer, norm in zip(self.layers, self.norms):
            features = norm(layer(features, places)).relu()
        return features


model = Backbone().cuda()
optimizer = torch.optim.Adam(model.parameters())
for step in range(3):
    places = torch.stack([torch.randint(n, (40_000,)) for n in SHAPE], dim=1).cuda()
    loss = model(torch.rand(40_000, 4).cuda(), places).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
