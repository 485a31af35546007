"""Trains a capsule network on colour images: the routing predicts every class from each capsule."""

import sys

import torch
import torch.nn.functional as F
from torch import nn

FIXED = "--fixed" in sys.argv
SIZE, BATCH, CLASSES = (32 if FIXED else 128), 16, 10


def squash(x):
    norm = x.norm(dim=-1, keepdim=True)
    return norm / (1 + norm**2) * x


class PrimaryCapsules(nn.Module):
    def __init__(self, channels=256, capsules=32, width=8):
        super().__init__()
        self.width = width
        self.convolution = nn.Conv2d(channels, capsules * width, 9, stride=2)

    def forward(self, x):
        return squash(self.convolution(x).flatten(1).view(len(x), -1, self.width))


class ClassCapsules(nn.Module):
    def __init__(self, capsules, width=8, out=16):
        super().__init__()
        self.weight = nn.Parameter(0.01 * torch.randn(CLASSES, capsules, width, out))

    def forward(self, x, rounds=3):
        predictions = (x[:, None, :, None, :] @ self.weight)[..., 0, :]
        logits = torch.zeros(*predictions.shape[:3], 1, device=x.device)
        for k in range(rounds):
            shares = F.softmax(logits, dim=1)
            outputs = squash((shares * predictions).sum(dim=2, keepdim=True))
            if k < rounds - 1:
                logits = logits + (predictions * outputs).sum(dim=-1, keepdim=True)
        return outputs[:, :, 0]


class CapsuleNet(nn.Module):
    def __init__(self):
        super().__init__()
        side = (SIZE - 8 - 8 + 1) // 2
        self.first = nn.Conv2d(3, 256, 9)
        self.primary = PrimaryCapsules()
        self.classes = ClassCapsules(32 * side * side)

    def forward(self, images):
        return self.classes(self.primary(F.relu(self.first(images)))).norm(dim=-1)


model = CapsuleNet().cuda()
optimizer = torch.optim.Adam(model.parameters())
for step in range(4):
    images, labels = torch.rand(BATCH, 3, SIZE, SIZE).cuda(), torch.randint(CLASSES, (BATCH,)).cuda()
    lengths = model(images)
    one_hot = F.one_hot(labels, CLASSES).float()
    loss = (one_hot * F.relu(0.9 - lengths) ** 2 + 0.5 * (1 - one_hot) * F.relu(lengths - 0.1) ** 2).sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())
