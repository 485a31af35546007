"""Trains a network that segments roads with a loss on the skeletons of its maps."""

import sys

import torch
import torch.nn.functional as F
from nets import UNet

FIXED = "--fixed" in sys.argv
ITERATIONS = 10 if FIXED else 50

model = UNet(classes=4, width=16).cuda()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)


def erode(x):
    return torch.min(-F.max_pool2d(-x, (3, 1), 1, (1, 0)), -F.max_pool2d(-x, (1, 3), 1, (0, 1)))


def open_(x):
    return F.max_pool2d(erode(x), 3, 1, 1)


def soft_skeleton(x, iterations):
    skeleton = F.relu(x - open_(x))
    for _ in range(iterations):
        x = erode(x)
        delta = F.relu(x - open_(x))
        skeleton = skeleton + F.relu(delta - skeleton * delta)
    return skeleton


def centerline_dice(maps, wanted):
    skeleton, wanted_skeleton = soft_skeleton(maps, ITERATIONS), soft_skeleton(wanted, ITERATIONS)
    precision = (skeleton * wanted).sum() / skeleton.sum()
    recall = (wanted_skeleton * maps).sum() / wanted_skeleton.sum()
    return 1 - 2 * precision * recall / (precision + recall)


for step in range(4):
    images = torch.rand(2, 3, 512, 1024).cuda()
    wanted = torch.rand(2, 4, 512, 1024).round().cuda()
    loss = centerline_dice(model(images).softmax(dim=1), wanted)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(loss.item())
