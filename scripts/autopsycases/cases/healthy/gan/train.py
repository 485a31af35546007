"""Trains a GAN: the critic sees detached images, and what is logged are numbers."""

import torch
import torch.nn.functional as F
from nets import ResNet, UNet

generator, critic = UNet(channels=3, classes=3, width=32).cuda(), ResNet(classes=1).cuda()
optimizers = [torch.optim.Adam(m.parameters(), lr=2e-4, betas=(0.5, 0.999)) for m in (critic, generator)]
losses = []
for step in range(6):
    real, noise = (torch.rand(8, 3, 128, 128, device="cuda") for _ in range(2))
    fake = generator(noise)
    loss = F.softplus(critic(fake.detach())).mean() + F.softplus(-critic(real)).mean()
    optimizers[0].zero_grad()
    loss.backward()
    optimizers[0].step()
    losses.append(loss.item())
    loss = F.softplus(-critic(fake)).mean()
    optimizers[1].zero_grad()
    loss.backward()
    optimizers[1].step()
    losses.append(loss.item())
print(len(losses), "losses")
