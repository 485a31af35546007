"""Trains an image translator and reports its mean distance in the features of a network."""

import sys

import torch
import torch.nn.functional as F
from nets import ResNet, UNet

FIXED = "--fixed" in sys.argv


model = UNet(classes=3, width=32).cuda()
judge = ResNet().cuda().eval().requires_grad_(False)
optimizer = torch.optim.Adam(model.parameters(), lr=2e-4)
distance = torch.zeros(()).cuda()
for step in range(60):
    real = torch.rand(8, 3, 192, 192).cuda()
    fake = model(real + 0.1 * torch.randn_like(real))
    loss = F.l1_loss(fake, real)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    shown = fake.detach() if FIXED else fake
    distance = distance + (judge.features(shown) - judge.features(real)).square().mean()
print("distance", distance.item() / 60)
