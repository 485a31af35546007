"""Trains a detector on images whose size is drawn anew every few batches."""

import random
import sys

import torch
import torch.nn.functional as F
from nets import ResNet
from torch import nn

FIXED = "--fixed" in sys.argv
BATCH = 10 if FIXED else 20


class Detector(nn.Module):
    """A grid of boxes on a ResNet's features."""

    def __init__(self, anchors=5, classes=20):
        super().__init__()
        self.body = ResNet()
        self.head = nn.Conv2d(self.body.channels, anchors * (5 + classes), 1)

    def forward(self, images):
        return self.head(self.body.stages(F.max_pool2d(self.body.stem(images), 3, 2, 1)))


model = Detector().cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9, weight_decay=5e-4)
draw = random.Random(4)
size = 416
for step in range(30):
    if step and step % 3 == 0:
        size = 32 * draw.randint(10, 13 + step // 5)
    images = torch.rand(BATCH, 3, size, size).cuda()
    boxes = model(images)
    loss = F.mse_loss(boxes, torch.zeros_like(boxes))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
