"""Grows a generator and a discriminator, and shows the same samples at each resolution."""

import sys

import torch
import torch.nn.functional as F
from torch import nn

FIXED = "--fixed" in sys.argv
LATENT, WIDTH = 256, 64
BATCHES = {16: 128, 32: 64, 64: 32, 128: 16, 256: 4}


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.ConvTranspose2d(LATENT, WIDTH, 8)
        self.blocks = nn.ModuleList()
        self.image = nn.Conv2d(WIDTH, 3, 1)

    def grow(self):
        self.blocks.append(
            nn.Sequential(
                nn.Upsample(scale_factor=2),
                nn.Conv2d(WIDTH, WIDTH, 3, padding=1),
                nn.LeakyReLU(0.2),
                nn.Conv2d(WIDTH, WIDTH, 3, padding=1),
                nn.LeakyReLU(0.2),
            ).cuda()
        )

    def forward(self, z):
        x = self.first(z[:, :, None, None])
        for block in self.blocks:
            x = block(x)
        return self.image(x)


class Discriminator(nn.Module):
    def __init__(self):
        super().__init__()
        self.image = nn.Conv2d(3, WIDTH, 1)
        self.blocks = nn.ModuleList()
        self.last = nn.Linear(WIDTH * 64, 1)

    def grow(self):
        self.blocks.append(
            nn.Sequential(nn.Conv2d(WIDTH, WIDTH, 3, padding=1), nn.LeakyReLU(0.2), nn.AvgPool2d(2)).cuda()
        )

    def forward(self, x):
        x = self.image(x)
        for block in self.blocks:
            x = block(x)
        return self.last(x.flatten(1))


g, d = Generator().cuda(), Discriminator().cuda()
z_test = torch.randn(BATCHES[16], LATENT).cuda()
for resolution, batch in BATCHES.items():
    g.grow()
    d.grow()
    of_g = torch.optim.Adam(g.parameters(), lr=1e-3, betas=(0.0, 0.99))
    of_d = torch.optim.Adam(d.parameters(), lr=1e-3, betas=(0.0, 0.99))
    for step in range(6):
        real = torch.rand(batch, 3, resolution, resolution).cuda()
        fake = g(torch.randn(batch, LATENT).cuda())
        of_d.zero_grad()
        (F.softplus(-d(real)).mean() + F.softplus(d(fake.detach())).mean()).backward()
        of_d.step()
        of_g.zero_grad()
        F.softplus(-d(fake)).mean().backward()
        of_g.step()
    with torch.no_grad():
        shown = z_test[:batch] if FIXED else z_test
        samples = g(shown).cpu()
    print(resolution, samples.shape)
