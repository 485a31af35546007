"""Trains a network on windows of time series; the generator of batches puts all of them onto the GPU."""

import sys

import torch
import torch.nn.functional as F
from nets import UNet

FIXED = "--fixed" in sys.argv


def get_batches(x, y, size):
    if not FIXED:
        x, y = x.cuda(), y.cuda()
    for i in range(0, len(x), size):
        yield x[i : i + size], y[i : i + size]


windows, target = torch.zeros(400, 16, 64, 1024), torch.zeros(400, 1, 64, 1024)
model = UNet(channels=16, classes=1, width=32, levels=3).cuda()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for step, (x, y) in enumerate(get_batches(windows, target, 16)):
    loss = F.mse_loss(model(x.cuda()), y.cuda())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step == 5:
        break
