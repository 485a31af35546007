"""Segments volumes window by window and puts the results together, as sliding window inference does."""

import sys

import torch
from torch import nn

FIXED = "--fixed" in sys.argv
CLASSES, WINDOW, OVERLAP = 24, 96, 48


def conv(channels, to):
    return nn.Sequential(nn.Conv3d(channels, to, 3, padding=1), nn.InstanceNorm3d(to), nn.LeakyReLU())


model = nn.Sequential(conv(1, 32), conv(32, 64), conv(64, 32), nn.Conv3d(32, CLASSES, 1)).cuda().eval()


def starts(size):
    return [*range(0, size - WINDOW, OVERLAP), size - WINDOW]


def sliding_window_inference(image, device):
    size = image.shape[2:]
    scores = torch.zeros(1, CLASSES, *size, device=device)
    count = torch.zeros(1, 1, *size, device=device)
    for z in starts(size[0]):
        for y in starts(size[1]):
            for x in starts(size[2]):
                at = (..., slice(z, z + WINDOW), slice(y, y + WINDOW), slice(x, x + WINDOW))
                scores[at] += model(image[at]).to(device)
                count[at] += 1
    return scores.div_(count)


def validate(volumes):
    with torch.no_grad():
        for size in volumes:
            image = torch.rand(1, 1, *size).cuda()
            result = sliding_window_inference(image, "cpu" if FIXED else "cuda")
            print(result.shape, "on the", result.device)


validate([(96, 192, 192), (192, 320, 320), (192, 384, 384)])
