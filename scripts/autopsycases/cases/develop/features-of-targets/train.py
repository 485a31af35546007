"""Trains a generator of faces with a loss that compares features of a fixed network."""

import sys
from contextlib import nullcontext

import torch
import torch.nn.functional as F
from nets import UNet, twice
from torch import nn

FIXED = "--fixed" in sys.argv


class VGG(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([twice(3, 64), twice(64, 128), twice(128, 256), twice(256, 512)])

    def forward(self, x):
        out = []
        for block in self.blocks:
            x = block(x)
            out.append(x)
            x = F.max_pool2d(x, 2)
        return out


class ContentLoss(nn.Module):
    def __init__(self):
        super().__init__()
        self.vgg = VGG().eval()

    def forward(self, x, x_hat):
        with torch.no_grad() if FIXED else nullcontext():
            wanted = self.vgg(x)
        made = self.vgg(x_hat)
        return sum(F.l1_loss(b, a) for a, b in zip(wanted, made))


generator = UNet(classes=3, width=32).cuda()
content_loss = ContentLoss().cuda()
optimizer = torch.optim.Adam(generator.parameters(), lr=5e-5)
for step in range(4):
    landmarks = torch.rand(12, 3, 256, 256).cuda()
    faces = torch.rand(12, 3, 256, 256).cuda()
    x_hat = generator(landmarks)
    loss = content_loss(faces, x_hat)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())
