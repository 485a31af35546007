"""Finds faces in a photo at several scales, and keeps what each scale found until the end."""

import sys

import torch
import torch.nn.functional as F
from nets import ResNet
from torch import nn

FIXED = "--fixed" in sys.argv


class FaceNet(nn.Module):
    """Scores and boxes at each position of a feature pyramid's coarsest level."""

    def __init__(self):
        super().__init__()
        self.body = ResNet()
        self.smooth = nn.Sequential(nn.Conv2d(2048, 256, 3, padding=1), nn.ReLU())
        self.face, self.box = nn.Conv2d(256, 2, 1), nn.Conv2d(256, 4, 1)

    def forward(self, x):
        x = self.smooth(self.body.stages(F.max_pool2d(self.body.stem(x), 3, 2, 1)))
        return torch.cat([self.face(x).softmax(1)[:, 1:], self.box(x)], dim=1).flatten(2).transpose(1, 2)


def detect(net, photo, shrink):
    x = F.interpolate(photo, scale_factor=shrink, mode="bilinear") if shrink != 1 else photo
    found = net(x.cuda())[0]
    return found[found[:, 0].argsort(descending=True)[:750]] / shrink


def test_oneimage(net, photo):
    if FIXED:
        torch.set_grad_enabled(False)
    parts = [detect(net, photo, 1)]
    for scale in (0.5, 0.75, 1.25, 1.5, 1.75):
        parts.append(detect(net, photo, scale))
        mirrored = detect(net, photo.flip(3), scale)
        parts.append(mirrored)
    return torch.cat(parts).detach().cpu()


net = FaceNet().cuda().eval()
print(test_oneimage(net, torch.rand(1, 3, 720, 1280)).shape)
