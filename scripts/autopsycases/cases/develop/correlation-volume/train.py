"""Estimates optical flow between frames of 1440x2560 with correlations of all pairs of pixels."""

import sys

import torch
import torch.nn.functional as F
from torch import nn

FIXED = "--fixed" in sys.argv


class CorrBlock:
    """A pyramid of the correlations between each two pixels of two feature maps."""

    def __init__(self, fmap1, fmap2, levels=4):
        self.pyramid = []
        corr = CorrBlock.corr(fmap1, fmap2)
        b, h1, w1, _, h2, w2 = corr.shape
        corr = corr.reshape(b * h1 * w1, 1, h2, w2)
        self.pyramid.append(corr)
        for _ in range(levels - 1):
            corr = F.avg_pool2d(corr, 2, stride=2)
            self.pyramid.append(corr)

    def __call__(self, coords):
        means = [level.mean(dim=(1, 2, 3)) for level in self.pyramid]
        return torch.cat([x.view(1, 1, *coords.shape[2:]) for x in means], 1)

    @staticmethod
    def corr(fmap1, fmap2):
        b, dim, h, w = fmap1.shape
        corr = torch.matmul(fmap1.view(b, dim, h * w).transpose(1, 2), fmap2.view(b, dim, h * w))
        return corr.view(b, h, w, 1, h, w) / torch.sqrt(torch.tensor(dim).float())


class RAFT(nn.Module):
    def __init__(self):
        super().__init__()
        self.fnet = nn.Sequential(
            nn.Conv2d(3, 64, 7, 2, 3), nn.InstanceNorm2d(64), nn.ReLU(inplace=True),
            nn.Conv2d(64, 96, 3, 2, 1), nn.InstanceNorm2d(96), nn.ReLU(inplace=True),
            nn.Conv2d(96, 256, 3, 2, 1),
        )  # fmt: skip
        self.update = nn.Conv2d(256 + 4 + 2, 2, 3, padding=1)

    def forward(self, image1, image2, iterations=12):
        fmap1, fmap2 = self.fnet(torch.cat([image1, image2])).chunk(2)
        corr_fn = CorrBlock(fmap1, fmap2)
        flow = torch.zeros(1, 2, *fmap1.shape[2:], device=fmap1.device)
        for _ in range(iterations):
            flow = flow + self.update(torch.cat([fmap1, corr_fn(flow), flow], 1))
        return F.interpolate(flow, scale_factor=8)


model = RAFT().cuda().eval()
with torch.no_grad():
    for pair in range(3):
        frames = [torch.rand(1, 3, 1440, 2560).cuda() for _ in range(2)]
        if FIXED:
            frames = [F.interpolate(f, scale_factor=0.5) for f in frames]
        print(model(*frames).shape)
