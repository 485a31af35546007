"""Fills holes in the frames of a video, all of which the network looks at together."""

import sys

import torch
import torch.nn.functional as F
from nets import Block
from torch import nn

FIXED = "--fixed" in sys.argv


class Inpainter(nn.Module):
    """An encoder of frames, attention over the patches of all frames, and a decoder."""

    def __init__(self, width=128):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2d(4, 64, 3, 2, 1), nn.LeakyReLU(0.2),
            nn.Conv2d(64, 64, 3, padding=1), nn.LeakyReLU(0.2),
            nn.Conv2d(64, width, 3, 2, 1), nn.LeakyReLU(0.2),
        )
        self.patch = nn.Conv2d(width, 256, 8, 8)
        self.blocks = nn.Sequential(*(Block(256, 4, causal=False) for _ in range(4)))
        self.unpatch = nn.ConvTranspose2d(256, width, 8, 8)
        self.decoder = nn.Sequential(
            nn.Upsample(scale_factor=2), nn.Conv2d(width, 64, 3, padding=1), nn.LeakyReLU(0.2),
            nn.Upsample(scale_factor=2), nn.Conv2d(64, 3, 3, padding=1),
        )

    def forward(self, frames, masks):
        x = self.encoder(torch.cat([frames, masks], dim=1))
        y = self.patch(x)
        size = y.shape[2:]
        y = self.blocks(y.flatten(2).transpose(1, 2).flatten(0, 1).unsqueeze(0))[0]
        y = y.view(len(x), -1, 256).transpose(1, 2).unflatten(2, size)
        return torch.tanh(self.decoder(x + self.unpatch(y)))


def main_worker(frames, masks, segment=None):
    model = Inpainter().cuda().eval()
    results = []
    with torch.no_grad():
        for part, holes in zip(frames.split(segment or len(frames)), masks.split(segment or len(frames))):
            holes = F.interpolate(holes, size=part.shape[2:]).cuda()
            part = part.cuda()
            filled = model(part * (1 - holes), holes)
            results.append((filled * holes + part * (1 - holes)).cpu())
    return torch.cat(results)


frames, masks = torch.rand(240, 3, 256, 448), torch.zeros(240, 1, 64, 112)
print(main_worker(frames, masks, 30 if FIXED else None).shape)
