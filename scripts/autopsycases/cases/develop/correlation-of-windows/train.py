"""Matches two photographs: coarsely first, then with local correlations at a higher resolution."""

import sys

import torch
import torch.nn.functional as F
from torch import nn

FIXED = "--fixed" in sys.argv
COARSE, UPSAMPLE = 560, 864 if FIXED else 1152


class Encoder(nn.Module):
    def __init__(self, widths=(64, 128, 256, 512)):
        super().__init__()
        self.stages = nn.ModuleList()
        for a, b in zip((3, *widths), widths):
            self.stages.append(nn.Sequential(nn.Conv2d(a, b, 3, 2, 1), nn.BatchNorm2d(b), nn.ReLU()))

    def forward(self, x):
        features = []
        for stage in self.stages:
            x = stage(x)
            features.append(x)
        return features


def local_correlation(one, other, flow, radius):
    """Correlates each position of one with a window around where flow says it is in other."""
    b, c, h, w = one.shape
    side = torch.linspace(-2 * radius / h, 2 * radius / h, 2 * radius + 1, device=one.device)
    window = torch.stack(torch.meshgrid(side, side, indexing="ij"), dim=-1).view(1, 1, 1, -1, 2)
    places = (flow.permute(0, 2, 3, 1)[:, :, :, None] + window).reshape(b, h, -1, 2)
    around = F.grid_sample(other, places, align_corners=False).reshape(b, c, h, w, -1)
    return (one[..., None] / c**0.5 * around).sum(dim=1).permute(0, 3, 1, 2)


class Refiner(nn.Module):
    def __init__(self, channels, radius):
        super().__init__()
        self.radius = radius
        self.layers = nn.Sequential(
            nn.Conv2d(channels + (2 * radius + 1) ** 2 + 2, 256, 3, 1, 1),
            nn.ReLU(),
            nn.Conv2d(256, 2, 3, 1, 1),
        )

    def forward(self, one, other, flow):
        correlation = local_correlation(one, other, flow, self.radius)
        return flow + self.layers(torch.cat([one, correlation, flow], dim=1))


class Matcher(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = Encoder()
        self.coarse = nn.Conv2d(1024, 2, 1)
        self.refiners = nn.ModuleList([Refiner(512, 7), Refiner(256, 7), Refiner(128, 3), Refiner(64, 2)])

    def refine(self, ones, others, flow):
        for refiner, one, other in zip(self.refiners, ones[::-1], others[::-1]):
            flow = F.interpolate(flow, one.shape[-2:], mode="bilinear")
            flow = refiner(one, other, flow)
        return flow

    @torch.inference_mode()
    def match(self, one, other):
        def at(images, size):
            return self.encoder(F.interpolate(images, (size, size), mode="bilinear"))

        ones, others = at(one, COARSE), at(other, COARSE)
        flow = self.coarse(torch.cat([ones[-1], others[-1]], dim=1))
        flow = self.refine(ones, others, flow)
        return self.refine(at(one, UPSAMPLE), at(other, UPSAMPLE), flow)


model = Matcher().cuda().eval()
for pair in range(2):
    one, other = torch.rand(1, 3, 1200, 1600).cuda(), torch.rand(1, 3, 1200, 1600).cuda()
    flow = model.match(one, other)
    print(pair, tuple(flow.shape))
