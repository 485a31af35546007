"""Finds faces in frames in three stages: the second looks at all candidates of the first."""

import sys

import torch
import torch.nn.functional as F
from torch import nn

FIXED = "--fixed" in sys.argv


class Propose(nn.Module):
    """Slides over an image of any size."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = nn.Conv2d(3, 10, 3), nn.Conv2d(10, 16, 3), nn.Conv2d(16, 32, 3)
        self.score, self.box = nn.Conv2d(32, 2, 1), nn.Conv2d(32, 4, 1)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.a(x)), 2, ceil_mode=True)
        x = F.relu(self.c(F.relu(self.b(x))))
        return self.score(x).softmax(1), self.box(x)


class Refine(nn.Module):
    """Scores candidates of 24 by 24 pixels."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = nn.Conv2d(3, 28, 3), nn.Conv2d(28, 48, 3), nn.Conv2d(48, 64, 2)
        self.dense = nn.Linear(576, 128)
        self.score, self.box = nn.Linear(128, 2), nn.Linear(128, 4)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.a(x)), 3, 2, ceil_mode=True)
        x = F.max_pool2d(F.relu(self.b(x)), 3, 2, ceil_mode=True)
        x = F.relu(self.dense(F.relu(self.c(x)).flatten(1)))
        return self.score(x).softmax(1), self.box(x)


def in_batches(net, crops, size=512):
    parts = [net(part) for part in crops.split(size)]
    return tuple(torch.cat(p) for p in zip(*parts))


@torch.no_grad()
def detect(propose, refine, frames, candidates):
    scores, _ = propose(frames)
    kept = torch.randint(frames.shape[0], (candidates,)).cuda()
    corner = frames[:, :, :48, :48]
    crops = F.interpolate(corner[kept], size=(24, 24), mode="area")
    scores, boxes = in_batches(refine, crops) if FIXED else refine(crops)
    return boxes[scores[:, 1] > 0.7].cpu()


propose, refine = Propose().cuda().eval(), Refine().cuda().eval()
for candidates in (900, 2500, 4200, 1800, 24000):
    print(detect(propose, refine, torch.rand(2, 3, 480, 640).cuda(), candidates).shape)
