"""Extracts a speech encoder's features of recordings of all lengths, one at a time, onto the host."""

import contextlib
import random
import sys

import torch
from nets import Block
from torch import nn

FIXED = "--fixed" in sys.argv


class Hubert(nn.Module):
    """Samples to features: [batch, samples] to [batch, frames, 768], a frame for each 320 samples."""

    def __init__(self, width=768, layers=12, heads=12):
        super().__init__()
        convolutions = []
        for i, (kernel, stride) in enumerate([(10, 5), (3, 2), (3, 2), (3, 2), (3, 2), (2, 2), (2, 2)]):
            convolutions += [nn.Conv1d(512 if i else 1, 512, kernel, stride), nn.GELU()]
        self.convolutions = nn.Sequential(*convolutions)
        self.project = nn.Sequential(nn.LayerNorm(512), nn.Linear(512, width))
        self.blocks = nn.ModuleList(Block(width, heads, causal=False) for _ in range(layers))

    def forward(self, samples):
        x = self.project(self.convolutions(samples[:, None]).transpose(1, 2))
        for block in self.blocks:
            x = block(x)
        return x


model = Hubert().cuda().eval()
draw = random.Random(7)
seconds = [draw.uniform(2, 9) for _ in range(12)] + [74, 5]
features = []
with torch.no_grad() if FIXED else contextlib.nullcontext():
    for length in seconds:
        samples = torch.rand(1, int(16000 * length)).cuda()
        features.append(model(samples)[0].detach().cpu().numpy())
        print(f"{length:.1f} s", features[-1].shape)
