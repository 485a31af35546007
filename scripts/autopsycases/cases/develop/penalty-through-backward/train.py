"""Trains the critic of a GAN with a penalty on the size of its gradients."""

import sys

import torch
from torch import nn

FIXED = "--fixed" in sys.argv


class Critic(nn.Module):
    """Convolutions from an image to one number."""

    def __init__(self, width=32, levels=6):
        super().__init__()
        layers, channels = [], 3
        for i in range(levels):
            to = width << min(i, 4)
            layers += [nn.Conv2d(channels, to, 4, 2, 1), nn.LeakyReLU(0.2)]
            channels = to
        self.layers = nn.Sequential(*layers)
        self.last = nn.Linear(channels * 4 * 4, 1)

    def forward(self, images):
        return self.last(self.layers(images).flatten(1))


class Generator(nn.Module):
    """Transposed convolutions from noise to an image."""

    def __init__(self, width=32, levels=6):
        super().__init__()
        self.first = nn.Linear(128, width * 16 * 4 * 4)
        layers, channels = [], width * 16
        for i in reversed(range(levels)):
            to = width << min(max(i - 1, 0), 4)
            layers += [nn.ConvTranspose2d(channels, to, 4, 2, 1), nn.BatchNorm2d(to), nn.ReLU()]
            channels = to
        self.layers = nn.Sequential(*layers, nn.Conv2d(channels, 3, 1), nn.Tanh())

    def forward(self, noise):
        x = self.first(noise)
        return self.layers(x.view(len(x), -1, 4, 4))


class WassersteinLoss:
    """The distance that the critic estimates, with the penalty."""

    def __init__(self, critic):
        self.critic = critic

    def gradient_penalty(self, real, fake, weight=10.0):
        share = torch.rand(len(real), 1, 1, 1, device=real.device)
        merged = (share * real + (1 - share) * fake).detach().requires_grad_(True)
        scores = self.critic(merged)
        if FIXED:
            gradient = torch.autograd.grad(scores, merged, torch.ones_like(scores), create_graph=True)[0]
        else:
            scores.backward(torch.ones_like(scores), create_graph=True)
            gradient = merged.grad
        return weight * ((gradient.flatten(1).norm(2, dim=1) - 1) ** 2).mean()

    def of_critic(self, real, fake):
        loss = self.critic(fake).mean() - self.critic(real).mean()
        return loss + self.gradient_penalty(real, fake)

    def of_generator(self, fake):
        return -self.critic(fake).mean()


generator, critic = Generator().cuda(), Critic().cuda()
loss_of = WassersteinLoss(critic)
of_generator = torch.optim.Adam(generator.parameters(), lr=1e-3, betas=(0.0, 0.99))
of_critic = torch.optim.Adam(critic.parameters(), lr=1e-3, betas=(0.0, 0.99))
for step in range(40):
    real = torch.rand(16, 3, 256, 256).cuda()
    fake = generator(torch.randn(16, 128, device="cuda")).detach()
    loss = loss_of.of_critic(real, fake)
    of_critic.zero_grad()
    loss.backward()
    of_critic.step()
    loss = loss_of.of_generator(generator(torch.randn(16, 128, device="cuda")))
    of_generator.zero_grad()
    loss.backward()
    of_generator.step()
    print(step, loss.item())
