"""Trains a U-Net on images that are too large for the card."""

import torch
import torch.nn.functional as F
from nets import UNet

model = UNet().cuda()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
for step in range(3):
    images, target = torch.rand(4, 3, 1024, 1024).cuda(), torch.randint(2, (4, 1024, 1024)).cuda()
    loss = F.cross_entropy(model(images), target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
