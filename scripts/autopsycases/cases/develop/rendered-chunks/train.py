"""Renders an image from a radiance field, chunk by chunk."""

import sys

import torch
import torch.nn.functional as F
from torch import nn

FIXED = "--fixed" in sys.argv


class Field(nn.Module):
    """A multilayer perceptron from points and directions to colours and densities."""

    def __init__(self, width=256, layers=8):
        super().__init__()
        widths = [63] + [width] * layers
        self.body = nn.ModuleList(nn.Linear(a, b) for a, b in zip(widths, widths[1:]))
        self.density = nn.Linear(width, 1)
        self.colour = nn.Sequential(nn.Linear(width + 27, width // 2), nn.ReLU(), nn.Linear(width // 2, 3))

    def forward(self, points, directions):
        x = points
        for layer in self.body:
            x = F.relu(layer(x))
        return self.colour(torch.cat([x, directions], dim=-1)).sigmoid(), self.density(x)


def encoded(x, frequencies):
    waves = [f(x * 2**k) for k in range(frequencies) for f in (torch.sin, torch.cos)]
    return torch.cat([x, *waves], dim=-1)


def render(field, rays, samples=128):
    depths = torch.linspace(2, 6, samples, device=rays.device).expand(len(rays), samples)
    points = rays[:, None, :3] + rays[:, None, 3:] * depths[..., None]
    directions = encoded(rays[:, 3:], 4)[:, None].expand(-1, samples, -1)
    colours, densities = field(encoded(points, 10), directions)
    alphas = 1 - torch.exp(-F.relu(densities.squeeze(-1)))
    weights = alphas * torch.cumprod(1 - alphas + 1e-10, dim=-1)
    return {
        "rgb": (weights[..., None] * colours).sum(dim=1),
        "depth": (weights * depths).sum(dim=1),
        "weights": weights,
        "points": points,
    }


field = Field().cuda().eval()
with torch.no_grad():
    for image in range(2):
        rays = torch.rand(756 * 1008, 6).cuda()
        results = {}
        for chunk in rays.split(1024 * 4):
            for k, v in render(field, chunk).items():
                results.setdefault(k, []).append(v.cpu() if FIXED else v)
        results = {k: torch.cat(v) for k, v in results.items()}
