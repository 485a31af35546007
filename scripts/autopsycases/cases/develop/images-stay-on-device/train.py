"""Fits a radiance field to large photographs that are cached on the CPU and moved one by one."""

import sys

import torch
import torch.nn.functional as F
from torch import nn

FIXED = "--fixed" in sys.argv


class Cache:
    """All photographs of a scene, in memory."""

    def __init__(self, count, height, width):
        photo = torch.zeros(height, width, 3)
        self.train = [{"image": photo, "index": i} for i in range(count)]

    def next(self, step):
        data = self.train[step % len(self.train)]
        if FIXED:
            data = dict(data)
        data["image"] = data["image"].to("cuda")
        return data


class Field(nn.Module):
    """A radiance field of eight layers."""

    def __init__(self, width=256):
        super().__init__()
        sizes = [63] + 8 * [width]
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in zip(sizes, sizes[1:]))
        self.color = nn.Linear(width, 3)

    def forward(self, points):
        for layer in self.layers:
            points = F.relu(layer(points))
        return torch.sigmoid(self.color(points))


cache, model = Cache(300, 3024, 4032), Field().cuda()
optimizer = torch.optim.Adam(model.parameters(), lr=5e-4)
for step in range(120):
    data = cache.next(step)
    rays = torch.randint(3024 * 4032, (4096,)).cuda()
    wanted = data["image"].view(-1, 3)[rays]
    colors = model(torch.rand(4096 * 64, 63, device="cuda")).view(4096, 64, 3).mean(dim=1)
    loss = F.mse_loss(colors, wanted)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
