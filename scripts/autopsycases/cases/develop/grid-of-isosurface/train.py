"""Trains a neural surface on images, and extracts its mesh from a fine grid."""

import sys

import torch
import torch.nn.functional as F
from torch import nn

FIXED = "--fixed" in sys.argv


class VolumeSDF(nn.Module):
    def __init__(self, width=128, frequencies=6):
        super().__init__()
        self.frequencies = frequencies
        self.network = nn.Sequential(
            nn.Linear(3 + 6 * frequencies, width), nn.Softplus(100),
            nn.Linear(width, width), nn.Softplus(100), nn.Linear(width, 1 + 13),
        )

    def forward(self, points):
        waves = [f(points * 2**k) for k in range(self.frequencies) for f in (torch.sin, torch.cos)]
        out = self.network(torch.cat([points, *waves], dim=-1))
        return out[..., 0], out


class VolumeRadiance(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.network = nn.Sequential(nn.Linear(14 + 3, width), nn.ReLU(), nn.Linear(width, 3), nn.Sigmoid())

    def forward(self, feature, dirs):
        return self.network(torch.cat([feature, dirs], dim=-1))


def chunk_batch(func, chunk_size, move_to_cpu, x):
    out = []
    for part in x.split(chunk_size):
        if FIXED:
            part = part.cuda()
        out.append(func(part).cpu() if move_to_cpu else func(part))
    return torch.cat(out)


class MarchingCubeHelper:
    def __init__(self, resolution):
        self.resolution = resolution

    def grid_vertices(self):
        axis = torch.linspace(0, 1, self.resolution)
        x, y, z = torch.meshgrid(axis, axis, axis, indexing="ij")
        return torch.stack([x.reshape(-1), y.reshape(-1), z.reshape(-1)], dim=-1)


class NeuSModel(nn.Module):
    def __init__(self, isosurface_resolution, chunk=2_097_152 // 8):
        super().__init__()
        self.geometry, self.texture = VolumeSDF(), VolumeRadiance()
        self.helper, self.chunk = MarchingCubeHelper(isosurface_resolution), chunk

    def forward(self, rays, samples=64):
        depths = torch.linspace(0.5, 2, samples, device=rays.device)
        points = rays[:, None, :3] + rays[:, None, 3:] * depths[:, None]
        sdf, feature = self.geometry(points)
        colours = self.texture(feature, rays[:, None, 3:].expand(-1, samples, -1))
        alpha = torch.sigmoid(-sdf * 64)
        weights = alpha * torch.cumprod(1 - alpha + 1e-7, dim=1)
        return (weights[..., None] * colours).sum(dim=1)

    @torch.no_grad()
    def isosurface(self):
        grid = self.helper.grid_vertices()
        if not FIXED:
            grid = grid.cuda()
        level = chunk_batch(lambda x: self.geometry(2 * x - 1)[0], self.chunk, True, grid)
        return level.view(self.helper.resolution, self.helper.resolution, -1)


model = NeuSModel(isosurface_resolution=512).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
for step in range(20):
    rays, rgb = torch.rand(1024, 6).cuda(), torch.rand(1024, 3).cuda()
    loss = F.smooth_l1_loss(model(rays), rgb)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(model.isosurface().shape)
