"""Trains fields of a moving scene, and renders a view of it every few steps."""

import sys

import torch
import torch.nn.functional as F
from torch import nn

FIXED = "--fixed" in sys.argv
SAMPLES = 48


class Field(nn.Module):
    def __init__(self, width=128, depth=6):
        super().__init__()
        layers, n = [], 84
        for _ in range(depth):
            layers += [nn.Linear(n, width), nn.ReLU()]
            n = width
        self.body = nn.Sequential(*layers)
        self.heads = nn.Linear(width, 4 + 6 + 2)

    def forward(self, x):
        frequencies = 2.0 ** torch.arange(10, device=x.device)
        angles = (x[..., None] * frequencies).flatten(-2)
        return self.heads(self.body(torch.cat([x, angles.sin(), angles.cos()], dim=-1)))


def render_rays(model, rays):
    t = torch.linspace(0, 1, SAMPLES, device=rays.device)
    x = rays[:, None, :3] + t[None, :, None] * rays[:, None, 3:6]
    x = torch.cat([x, rays[:, None, 6:].expand(-1, SAMPLES, -1)], dim=-1)
    raw = model(x)
    weights = F.softmax(raw[..., 3], dim=1)
    return {
        "rgb_map": (weights[..., None] * raw[..., :3].sigmoid()).sum(1),
        "depth_map": (weights * t).sum(1),
        "weights": weights,
        "raw_sf_ref2prev": raw[..., 4:7],
        "raw_sf_ref2post": raw[..., 7:10],
        "raw_prob": raw[..., 10:],
    }


def batchify_rays(model, rays, chunk=4096):
    results = {}
    for i in range(0, len(rays), chunk):
        for name, value in render_rays(model, rays[i : i + chunk]).items():
            results.setdefault(name, []).append(value.cpu() if FIXED else value)
    return {name: torch.cat(values) for name, values in results.items()}


model = Field().cuda()
optimizer = torch.optim.Adam(model.parameters(), lr=5e-4)
for step in range(1, 13):
    rays = torch.rand(1024, 7).cuda()
    out = render_rays(model, rays)
    loss = F.mse_loss(out["rgb_map"], torch.rand(1024, 3).cuda()) + 0.1 * out["raw_sf_ref2prev"].abs().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 6 == 0:
        with torch.no_grad():
            view = batchify_rays(model, torch.rand(1280 * 720, 7).cuda())
        print(step, loss.item(), view["rgb_map"].mean().item())
