"""Trains a segmentation network on two GPUs by DataParallel and takes the loss on the first."""

import sys

import torch
import torch.nn.functional as F
from nets import UNet

FIXED = "--fixed" in sys.argv



class WithLoss(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, images, target):
        return F.cross_entropy(self.model(images), target).view(1)


model = UNet(classes=150, width=16).cuda()
parallel = torch.nn.DataParallel(WithLoss(model) if FIXED else model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    images, target = torch.rand(8, 3, 384, 384).cuda(), torch.randint(150, (8, 384, 384)).cuda()
    loss = parallel(images, target).mean() if FIXED else F.cross_entropy(parallel(images), target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
