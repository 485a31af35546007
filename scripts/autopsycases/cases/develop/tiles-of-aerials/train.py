"""Trains a U-Net to find buildings in aerial images."""

import sys

import torch
import torch.nn.functional as F
from nets import UNet

FIXED = "--fixed" in sys.argv
CROP = 512 if FIXED else 1024
BATCH = 2


def trained(model, optimizer, iterations):
    for i in range(iterations):
        images = torch.rand(BATCH, 3, CROP, CROP).cuda()
        labels = torch.randint(2, (BATCH, CROP, CROP)).cuda()
        seg_logits = model(images)
        loss = F.cross_entropy(seg_logits, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(i, loss.item())


model = UNet(classes=2).cuda().train()
trained(model, torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9), 3)
