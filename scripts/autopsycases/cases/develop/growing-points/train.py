"""Fits points with colours to images; where gradients are large, points are split."""

import sys

import torch
from torch import nn

FIXED = "--fixed" in sys.argv
LIMIT = 400_000 if FIXED else None


def render(means, scales, colors, opacities, camera):
    """A crude renderer: each point adds its colour to the pixel that it falls on."""
    seen = means @ camera
    pixels = (seen[:, :2].sigmoid() * 255).long()
    index = (pixels[:, 0] * 256 + pixels[:, 1]).clamp(0, 256 * 256 - 1)
    near = torch.exp(-scales.square().sum(-1, keepdim=True) - seen.square().mean(-1, keepdim=True))
    weight = opacities.sigmoid() * near
    features = colors.view(len(means), -1, 3).mean(1) * weight
    return torch.zeros(256 * 256, 3, device=means.device).index_add(0, index, features)


class Points:
    """What is fitted, and its optimizer, which follow each other as points are split."""

    shapes = {"means": 3, "scales": 3, "colors": 48, "opacities": 1}

    def __init__(self, count):
        self.values = {k: nn.Parameter(torch.rand(count, n).cuda()) for k, n in self.shapes.items()}
        self.optimizer = torch.optim.Adam(
            [{"params": [p], "name": k} for k, p in self.values.items()], lr=1e-3, eps=1e-15
        )

    def densify(self, share):
        count = len(self.values["means"])
        extra = int(count * share)
        if LIMIT:
            extra = min(extra, LIMIT - count)
        if extra <= 0:
            return
        for group in self.optimizer.param_groups:
            old = group["params"][0]
            state = self.optimizer.state.pop(old)
            new = nn.Parameter(torch.cat([old, old[:extra].clone()]).detach().requires_grad_(True))
            for key in ("exp_avg", "exp_avg_sq"):
                state[key] = torch.cat([state[key], torch.zeros_like(old[:extra])])
            self.optimizer.state[new] = state
            group["params"][0] = new
            self.values[group["name"]] = new


points = Points(200_000)
for step in range(120):
    camera, image = torch.rand(3, 3).cuda(), torch.rand(256 * 256, 3).cuda()
    loss = (render(camera=camera, **points.values) - image).abs().mean()
    loss.backward()
    points.optimizer.step()
    points.optimizer.zero_grad(set_to_none=True)
    if step % 10 == 9:
        with torch.no_grad():
            points.densify(0.4)
print(len(points.values["means"]))
