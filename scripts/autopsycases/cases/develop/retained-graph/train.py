"""Trains a segmentation network with two losses, each with its own backward, and retains the graph twice."""

import sys

import torch
import torch.nn.functional as F
from nets import UNet

FIXED = "--fixed" in sys.argv

model = UNet(classes=8).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
for step in range(4):
    images = torch.rand(12, 3, 384, 384, device="cuda")
    labels = torch.randint(8, (12, 384, 384), device="cuda")
    output = model(images)
    optimizer.zero_grad()
    F.cross_entropy(output, labels).backward(retain_graph=True)
    smoothness = output.diff(dim=2).abs().mean() + output.diff(dim=3).abs().mean()
    smoothness.backward(retain_graph=not FIXED)
    optimizer.step()
