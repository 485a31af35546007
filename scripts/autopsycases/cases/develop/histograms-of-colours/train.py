"""Trains a GAN whose generator gets the colours of an image: a loss compares histograms."""

import sys

import torch
import torch.nn.functional as F
from torch import nn

FIXED = "--fixed" in sys.argv
BINS, LARGEST = 64, 64 if FIXED else 150
BATCH, SIZE = 32, 256


class RGBuvHistBlock(nn.Module):
    """Histograms of log-chroma, with a soft kernel: [batch, 3, bins, bins]."""

    def __init__(self, sigma=0.02):
        super().__init__()
        self.sigma = sigma
        self.register_buffer("bins", torch.linspace(-3, 3, BINS))

    def kernel(self, values):
        difference = (values[:, None] - self.bins).abs()
        return 1 / (1 + difference.square() / self.sigma**2)

    def forward(self, images):
        if images.shape[2] > LARGEST:
            images = F.interpolate(images, size=(LARGEST, LARGEST), mode="bilinear", align_corners=False)
        hists = []
        for image in images.clamp(0, 1):
            pixels = image.flatten(1).t()
            y = (pixels.square().sum(1) + 1e-6).sqrt()[:, None]
            planes = []
            for c, (a, b) in enumerate(((1, 2), (0, 2), (0, 1))):
                u = torch.log(pixels[:, c] + 1e-6) - torch.log(pixels[:, a] + 1e-6)
                v = torch.log(pixels[:, c] + 1e-6) - torch.log(pixels[:, b] + 1e-6)
                planes.append((y * self.kernel(u)).t() @ self.kernel(v))
            hists.append(torch.stack(planes))
        hists = torch.stack(hists)
        return hists / (hists.sum(dim=(1, 2, 3), keepdim=True) + 1e-6)


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.style = nn.Sequential(nn.Linear(3 * BINS * BINS, 512), nn.LeakyReLU(0.2), nn.Linear(512, 8192))
        layers, channels = [], 512
        for to in (256, 128, 64, 32, 16, 16):
            layers += [nn.Upsample(scale_factor=2), nn.Conv2d(channels, to, 3, padding=1), nn.LeakyReLU(0.2)]
            channels = to
        self.body = nn.Sequential(*layers, nn.Conv2d(channels, 3, 1), nn.Sigmoid())

    def forward(self, hist):
        return self.body(self.style(hist.flatten(1)).view(-1, 512, 4, 4))


def discriminator():
    layers, channels = [], 3
    for to in (32, 64, 128, 256, 256):
        layers += [nn.Conv2d(channels, to, 3, 2, 1), nn.LeakyReLU(0.2)]
        channels = to
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(256 * (SIZE // 32) ** 2, 1))


G, D, histogram = Generator().cuda(), discriminator().cuda(), RGBuvHistBlock().cuda()
opt_g, opt_d = (torch.optim.Adam(m.parameters(), lr=2e-4, betas=(0.5, 0.9)) for m in (G, D))
for step in range(6):
    images = torch.rand(BATCH, 3, SIZE, SIZE).cuda()
    with torch.no_grad():
        target = histogram(images)
    fake = G(target).detach()
    loss_d = F.relu(1 - D(images)).mean() + F.relu(1 + D(fake)).mean()
    opt_d.zero_grad()
    loss_d.backward()
    opt_d.step()
    made = G(target)
    distance = (target.sqrt() - (histogram(made) + 1e-8).sqrt()).square().sum() / BATCH
    loss_g = 2 * distance - D(made).mean()
    opt_g.zero_grad()
    loss_g.backward()
    opt_g.step()
