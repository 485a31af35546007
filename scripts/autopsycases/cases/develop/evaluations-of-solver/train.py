"""Trains an ordinary differential equation on images: a solver calls a network for each of its stages."""

import sys

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

FIXED = "--fixed" in sys.argv
BATCH, CHANNELS, STEPS = 64, 64, 40


class Dynamics(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.GroupNorm(32, CHANNELS), nn.GroupNorm(32, CHANNELS)
        self.conv1 = nn.Conv2d(CHANNELS + 1, CHANNELS, 3, padding=1)
        self.conv2 = nn.Conv2d(CHANNELS + 1, CHANNELS, 3, padding=1)

    def with_time(self, x, t):
        return torch.cat((torch.full_like(x[:, :1], t), x), dim=1)

    def forward(self, t, x):
        x = self.conv1(self.with_time(F.relu(self.norm1(x)), t))
        return self.conv2(self.with_time(F.relu(self.norm2(x)), t))


def odeint(f, x, steps):
    """Runge-Kutta of the fourth order from 0 to 1."""
    h = 1 / steps

    def step(x, t):
        k1 = f(t, x)
        k2 = f(t + h / 2, x + h / 2 * k1)
        k3 = f(t + h / 2, x + h / 2 * k2)
        k4 = f(t + h, x + h * k3)
        return x + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)

    for i in range(steps):
        # The adjoint method computes states again in the backward, as this does.
        x = checkpoint(step, x, i * h, use_reentrant=False) if FIXED else step(x, i * h)
    return x


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(1, CHANNELS, 3), nn.ReLU(), nn.Conv2d(CHANNELS, CHANNELS, 4, 2, 1)
        )
        self.dynamics = Dynamics()
        self.head = nn.Linear(CHANNELS, 10)

    def forward(self, images, steps):
        x = odeint(self.dynamics, self.stem(images), steps)
        return self.head(x.mean(dim=(2, 3)))


model = Net().cuda()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(12):
    images, labels = torch.rand(BATCH, 1, 28, 28).cuda(), torch.randint(10, (BATCH,)).cuda()
    # As the dynamics get harder, the solver takes more steps.
    loss = F.cross_entropy(model(images, STEPS * (4 + step) // 16), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())
