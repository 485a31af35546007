"""Estimates the optical flow of a film in high resolution."""

import sys
from contextlib import nullcontext

import torch
import torch.nn.functional as F
from torch import nn

FIXED = "--fixed" in sys.argv


def residual(channels, to, stride):
    return nn.Sequential(
        *(nn.Conv2d(channels, to, 3, stride, 1), nn.InstanceNorm2d(to), nn.ReLU()),
        *(nn.Conv2d(to, to, 3, padding=1), nn.InstanceNorm2d(to), nn.ReLU()),
    )


class FlowNet(nn.Module):
    def __init__(self, iterations=8):
        super().__init__()
        self.iterations = iterations
        self.encoder = nn.Sequential(residual(3, 64, 2), residual(64, 96, 2), residual(96, 128, 2))
        self.context = nn.Sequential(residual(3, 64, 2), residual(64, 96, 2), residual(96, 128, 2))
        self.update = nn.Sequential(residual(128 * 3 + 2, 192, 1), residual(192, 128, 1))
        self.head = nn.Conv2d(128, 2, 3, padding=1)

    def forward(self, before, after):
        a, b, hidden = self.encoder(before), self.encoder(after), self.context(before)
        flow = torch.zeros_like(a[:, :2])
        for _ in range(self.iterations):
            hidden = self.update(torch.cat([a, b, hidden, flow], dim=1))
            flow = flow + self.head(hidden)
        return F.interpolate(8 * flow, scale_factor=8, mode="bilinear")


model = FlowNet().cuda().eval()
frames = [torch.rand(1, 3, 1080, 1920) for _ in range(4)]
flows = []
with torch.inference_mode() if FIXED else nullcontext():
    for before, after in zip(frames, frames[1:]):
        flows.append(model(before.cuda(), after.cuda()).cpu())
print(len(flows))
