"""Trains a classifier and measures in every step how sensitive its loss is to the images."""

import sys

import torch
import torch.nn.functional as F
from nets import ResNet

FIXED = "--fixed" in sys.argv

model = ResNet(classes=10).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
for step in range(24):
    images = torch.randn(16, 3, 160, 160).cuda().requires_grad_()
    labels = torch.randint(10, (16,)).cuda()
    loss = F.cross_entropy(model(images), labels)
    optimizer.zero_grad()
    loss.backward(create_graph=not FIXED)
    sensitivity = images.grad.flatten(1).norm(dim=1).mean()
    optimizer.step()
    print(step, sensitivity.item())
