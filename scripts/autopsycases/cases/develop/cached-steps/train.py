"""Trains a voxel grid with rays through it; indices of rays and steps depend on the shape of the batch."""

import functools
import sys

import torch
from torch import nn

FIXED = "--fixed" in sys.argv
cached = (lambda f: f) if FIXED else functools.lru_cache(maxsize=128)


@cached
def create_full_step_id(shape):
    ray_id = torch.arange(shape[0]).view(-1, 1).expand(shape).flatten().cuda()
    step_id = torch.arange(shape[1]).view(1, -1).expand(shape).flatten().cuda()
    return ray_id, step_id


class Grid(nn.Module):
    def __init__(self, side=96):
        super().__init__()
        self.side = side
        self.density = nn.Parameter(torch.zeros(side**3))
        self.colour = nn.Linear(3, 3)

    def forward(self, origins, directions):
        rays, steps = len(origins), 256
        ray_id, step_id = create_full_step_id((rays, steps))
        points = origins[ray_id] + directions[ray_id] * (step_id / steps).unsqueeze(1)
        cells = (points.clamp(0, 0.999) * self.side).long()
        index = (cells[:, 0] * self.side + cells[:, 1]) * self.side + cells[:, 2]
        alpha = 1 - torch.exp(-nn.functional.softplus(self.density[index]))
        seen = (alpha.unsqueeze(1) * torch.sigmoid(self.colour(points))).view(rays, steps, 3)
        return seen.mean(1)


model = Grid().cuda()
optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
for step in range(120):
    rays = 8192 - 17 * step  # those that hit the scene
    origins, directions, colours = (torch.rand(rays, 3).cuda() for _ in range(3))
    loss = (model(origins, directions) - colours).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("done")
