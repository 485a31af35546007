"""Trains a radiance field on the rays of all images."""

import sys

import torch
from torch import nn

FIXED = "--fixed" in sys.argv
IMAGES, HEIGHT, WIDTH = 60, 756, 1008


class Field(nn.Module):
    def __init__(self, width=256, depth=8, frequencies=10):
        super().__init__()
        self.frequencies = frequencies
        size = 3 + 6 * frequencies
        self.layers = nn.ModuleList(nn.Linear(size if i == 0 else width, width) for i in range(depth))
        self.out = nn.Linear(width, 4)

    def forward(self, points):
        encoded = [points]
        for i in range(self.frequencies):
            encoded += [torch.sin(2**i * points), torch.cos(2**i * points)]
        x = torch.cat(encoded, dim=-1)
        for layer in self.layers:
            x = torch.relu(layer(x))
        return self.out(x)


def get_rays():
    return torch.rand(IMAGES * HEIGHT * WIDTH, 3, 3)


def render(field, rays, samples=64):
    origins, directions = rays[:, 0], rays[:, 1]
    depths = torch.linspace(2, 6, samples, device=rays.device)
    points = origins[:, None] + directions[:, None] * depths[:, None]
    raw = field(points)
    alpha = 1 - torch.exp(-torch.relu(raw[..., 3]))
    clear = torch.cat([torch.ones_like(alpha[:, :1]), 1 - alpha + 1e-10], dim=1)
    weights = alpha * torch.cumprod(clear, dim=1)[:, :-1]
    return (weights[..., None] * torch.sigmoid(raw[..., :3])).sum(dim=1)


rays_rgb = get_rays()
order = torch.randperm(len(rays_rgb))
rays_rgb = rays_rgb[order]
if not FIXED:
    rays_rgb = torch.Tensor(rays_rgb).cuda()
coarse, fine = Field().cuda(), Field().cuda()
optimizer = torch.optim.Adam([*coarse.parameters(), *fine.parameters()], lr=5e-4)
for step in range(6):
    batch = rays_rgb[step * 1024 : (step + 1) * 1024].cuda()
    wanted = batch[:, 2]
    loss = (render(coarse, batch) - wanted).pow(2).mean() + (render(fine, batch, 128) - wanted).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())
