"""Segments a volume by a window that slides over it, after a few steps of training on crops."""

import sys

import torch
import torch.nn.functional as F
from torch import nn

FIXED = "--fixed" in sys.argv


def conv(a, b, dilation=1):
    return nn.Sequential(
        nn.Conv3d(a, b, 3, padding=dilation, dilation=dilation), nn.BatchNorm3d(b), nn.ReLU(inplace=True)
    )


class HighRes(nn.Module):
    """A small HighRes3DNet: dilated convolutions at full resolution."""

    def __init__(self, classes=9):
        super().__init__()
        self.first = conv(1, 16)
        self.body = nn.Sequential(conv(16, 16), conv(16, 32, 2), conv(32, 32, 2), conv(32, 64, 4))
        self.head = nn.Conv3d(64, classes, 1)

    def forward(self, x):
        return self.head(self.body(self.first(x)))


def windows_of(shape, size, step):
    for z in range(0, shape[2] - size + 1, step):
        for y in range(0, shape[3] - size + 1, step):
            for x in range(0, shape[4] - size + 1, step):
                yield slice(z, z + size), slice(y, y + size), slice(x, x + size)


def sliding_window_inference(volume, size, batch, predictor):
    """The mean of what the windows that overlap say of each voxel."""
    windows = list(windows_of(volume.shape, size, size // 2))
    outputs = []
    for i in range(0, len(windows), batch):
        crops = torch.cat([volume[:, :, a, b, c] for a, b, c in windows[i : i + batch]])
        predicted = predictor(crops)
        outputs.append(predicted.cpu() if FIXED else predicted)
    outputs = torch.cat(outputs)
    total = torch.zeros(1, outputs.shape[1], *volume.shape[2:], device=outputs.device)
    count = torch.zeros(1, 1, *volume.shape[2:], device=outputs.device)
    for (a, b, c), output in zip(windows, outputs):
        total[:, :, a, b, c] += output
        count[:, :, a, b, c] += 1
    return total / count


net = HighRes().cuda()
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
for step in range(3):
    crops = torch.rand(2, 1, 64, 64, 64).cuda()
    labels = torch.randint(9, (2, 64, 64, 64)).cuda()
    loss = F.cross_entropy(net(crops), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
net.eval()
with torch.no_grad():
    volume = torch.rand(1, 1, 192, 256, 256).cuda()
    segmented = sliding_window_inference(volume, 32, 16, net)
    print(segmented.shape)
