"""Reconstructs images with a deep hierarchical autoencoder."""

import sys

import torch
import torch.nn.functional as F
from torch import nn

FIXED = "--fixed" in sys.argv


class Cell(nn.Module):
    def __init__(self, channels):
        super().__init__()
        inner = channels * 3
        self.norm = nn.BatchNorm2d(channels)
        self.expand = nn.Conv2d(channels, inner, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(inner)
        self.depth = nn.Conv2d(inner, inner, 5, padding=2, groups=inner, bias=False)
        self.norm3 = nn.BatchNorm2d(inner)
        self.reduce = nn.Conv2d(inner, channels, 1, bias=False)

    def forward(self, x):
        y = self.expand(self.norm(x))
        y = self.depth(F.silu(self.norm2(y)))
        return x + 0.1 * self.reduce(F.silu(self.norm3(y)))


class AutoEncoder(nn.Module):
    def __init__(self, channels=30, scales=4, groups=4, cells=2):
        super().__init__()
        self.stem = nn.Conv2d(3, channels, 3, padding=1)
        self.encoder, self.decoder = nn.ModuleList(), nn.ModuleList()
        for s in range(scales):
            width = channels << s
            tower = [Cell(width) for _ in range(groups * cells)]
            self.encoder.append(nn.Sequential(*tower, nn.Conv2d(width, 2 * width, 3, 2, 1)))
        for s in reversed(range(scales)):
            width = channels << s
            tower = [Cell(width) for _ in range(groups * cells)]
            self.decoder.append(nn.Sequential(nn.ConvTranspose2d(2 * width, width, 2, 2), *tower))
        self.logits = nn.Conv2d(channels, 100, 3, padding=1)

    def forward(self, image):
        x = self.stem(image)
        skips = []
        for stage in self.encoder:
            x = stage(x)
            skips.append(x)
        x = torch.zeros_like(x)
        for stage in self.decoder:
            x = stage(x + skips.pop())
        return self.logits(x)


def load():
    model = AutoEncoder()
    model.load_state_dict({k: v.clone() for k, v in model.state_dict().items()})
    return model.cuda().eval()


model = load()
with torch.set_grad_enabled(not FIXED):
    logits = model(torch.rand(4, 3, 256, 256).cuda())
print(logits.shape)
