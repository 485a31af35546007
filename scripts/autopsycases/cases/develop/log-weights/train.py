"""Annealed importance sampling for a decoder: bounds on the likelihood of images."""

import sys

import torch
import torch.nn.functional as F
from torch import nn

FIXED = "--fixed" in sys.argv


class Decoder(nn.Module):
    """A generator of images: [samples, latent] to [samples, 3, 64, 64]."""

    def __init__(self, latent=100, width=64):
        super().__init__()
        channels = [latent, 8 * width, 4 * width, 2 * width, width]
        layers = []
        for i, (a, b) in enumerate(zip(channels, channels[1:])):
            layers += [
                nn.ConvTranspose2d(a, b, 4, 1 if i == 0 else 2, 0 if i == 0 else 1, bias=False),
                nn.BatchNorm2d(b),
                nn.ReLU(),
            ]
        self.layers = nn.Sequential(*layers, nn.ConvTranspose2d(width, 3, 4, 2, 1))

    def forward(self, z):
        return self.layers(z[:, :, None, None])


model = Decoder().cuda().eval().requires_grad_(False)
images = torch.rand(256, 3, 64, 64).cuda()


def log_density(z, beta):
    prior = -0.5 * z.square().sum(dim=1)
    return prior + beta * -F.mse_loss(model(z), images, reduction="none").sum(dim=(1, 2, 3))


z = torch.randn(256, 100).cuda()
log_weights = torch.zeros(256, device="cuda")
schedule = torch.linspace(0, 1, 60).tolist()
for before, now in zip(schedule, schedule[1:]):
    z = z.detach().requires_grad_()
    change = log_density(z, now) - log_density(z, before)
    log_weights = log_weights + (change.detach() if FIXED else change)
    velocity = torch.randn_like(z)
    for _ in range(3):
        gradient = torch.autograd.grad(log_density(z, now).sum(), z)[0]
        velocity = velocity + 0.01 * gradient
        z = (z + 0.01 * velocity).detach().requires_grad_()
    print(now)
