"""Makes a photo four times as large with a network of residual dense blocks."""

import sys

import torch
import torch.nn.functional as F
from torch import nn

FIXED = "--fixed" in sys.argv


class DenseBlock(nn.Module):
    def __init__(self, width=64, grow=32):
        super().__init__()
        self.convs = nn.ModuleList(
            nn.Conv2d(width + i * grow, grow if i < 4 else width, 3, padding=1) for i in range(5)
        )

    def forward(self, x):
        found = [x]
        for conv in self.convs[:-1]:
            found.append(F.leaky_relu(conv(torch.cat(found, 1)), 0.2))
        return x + 0.2 * self.convs[-1](torch.cat(found, 1))


class RRDBNet(nn.Module):
    def __init__(self, blocks=23, width=64):
        super().__init__()
        self.first = nn.Conv2d(3, width, 3, padding=1)
        self.body = nn.Sequential(*(DenseBlock(width) for _ in range(blocks)))
        self.after = nn.Conv2d(width, width, 3, padding=1)
        self.up1, self.up2, self.hr = (nn.Conv2d(width, width, 3, padding=1) for _ in range(3))
        self.last = nn.Conv2d(width, 3, 3, padding=1)

    def forward(self, x):
        x = self.first(x)
        x = x + self.after(self.body(x))
        x = F.leaky_relu(self.up1(F.interpolate(x, scale_factor=2, mode="nearest")), 0.2)
        x = F.leaky_relu(self.up2(F.interpolate(x, scale_factor=2, mode="nearest")), 0.2)
        return self.last(F.leaky_relu(self.hr(x), 0.2))


class RealESRGANer:
    def __init__(self, tile=0, pad=10, scale=4):
        self.tile, self.pad, self.scale = tile, pad, scale
        self.model = RRDBNet().cuda().half().eval()

    def process(self, image):
        return self.model(image)

    def tile_process(self, image):
        _, _, height, width = image.shape
        output = image.new_zeros(1, 3, height * self.scale, width * self.scale)
        for y in range(0, height, self.tile):
            for x in range(0, width, self.tile):
                top, left = max(y - self.pad, 0), max(x - self.pad, 0)
                part = image[:, :, top : y + self.tile + self.pad, left : x + self.tile + self.pad]
                made = self.model(part)[:, :, (y - top) * self.scale :, (x - left) * self.scale :]
                place = output[:, :, y * self.scale :, x * self.scale :]
                h, w = (min(a, b, self.tile * self.scale) for a, b in zip(made.shape[2:], place.shape[2:]))
                place[:, :, :h, :w] = made[:, :, :h, :w]
        return output

    @torch.no_grad()
    def enhance(self, image):
        image = image.permute(2, 0, 1)[None].cuda().half() / 255
        made = self.tile_process(image) if self.tile else self.process(image)
        return made.clamp(0, 1).float().cpu()


upsampler = RealESRGANer(tile=256 if FIXED else 0)
for size in ((480, 640), (960, 1440)):
    print(upsampler.enhance(torch.randint(256, (*size, 3), dtype=torch.uint8)).shape)
