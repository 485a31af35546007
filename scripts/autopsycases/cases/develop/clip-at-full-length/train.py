"""Upscales a video with a network that passes features along all of its frames."""

import sys

import torch
import torch.nn.functional as F
from torch import nn

FIXED = "--fixed" in sys.argv
MAX_SEQ_LEN = 20 if FIXED else None


class Residuals(nn.Module):
    def __init__(self, channels, width=64, blocks=5):
        super().__init__()
        self.first = nn.Conv2d(channels, width, 3, padding=1)
        self.blocks = nn.ModuleList(
            nn.Sequential(
                nn.Conv2d(width, width, 3, padding=1), nn.ReLU(), nn.Conv2d(width, width, 3, padding=1)
            )
            for _ in range(blocks)
        )

    def forward(self, x):
        x = F.leaky_relu(self.first(x), 0.1)
        for block in self.blocks:
            x = x + block(x)
        return x


class Upscaler(nn.Module):
    """Four passes over the frames, back and forth, and four times their size at the end."""

    def __init__(self, width=64):
        super().__init__()
        self.width = width
        self.extract = Residuals(3, width)
        self.passes = nn.ModuleList(Residuals((2 + i) * width, width) for i in range(4))
        self.merge = nn.Conv2d(5 * width, width, 1)
        self.up = nn.ModuleList(nn.Conv2d(width, 4 * width, 3, padding=1) for _ in range(2))
        self.last = nn.Conv2d(width, 3, 3, padding=1)

    def propagate(self, features, index):
        frames = range(len(features[0]))
        state, states = None, []
        for i in reversed(frames) if index % 2 == 0 else frames:
            if state is None:
                state = torch.zeros_like(features[0][i])
            seen = [f[i] for f in features] + [state]
            state = state + self.passes[index](torch.cat(seen, dim=1))
            states.append(state)
        return states[::-1] if index % 2 == 0 else states

    def upsample(self, frame, features):
        x = self.merge(torch.cat(features, dim=1))
        for layer in self.up:
            x = F.pixel_shuffle(F.leaky_relu(layer(x), 0.1), 2)
        return self.last(x) + F.interpolate(frame, scale_factor=4, mode="bilinear")

    def forward(self, clip):
        frames = clip.unbind(1)
        features = [[self.extract(f) for f in frames]]
        for index in range(4):
            features.append(self.propagate(features, index))
        return torch.stack([self.upsample(f, [g[i] for g in features]) for i, f in enumerate(frames)], dim=1)


@torch.no_grad()
def restore(model, video):
    if MAX_SEQ_LEN is None:
        return model(video.cuda()).cpu()
    parts = video.split(MAX_SEQ_LEN, dim=1)
    return torch.cat([model(part.cuda()).cpu() for part in parts], dim=1)


network = Upscaler().cuda().eval()
print(restore(network, torch.rand(1, 90, 3, 180, 320)).shape)
