"""Resumes the training of a GAN with a moving average of the generator."""

import copy
import os
import sys
import tempfile

import torch
import torch.nn.functional as F
from nets import UNet

FIXED = "--fixed" in sys.argv
STEPS = 4


def build():
    generator = UNet(classes=3, width=96).cuda()
    critic = UNet(classes=1, width=64).cuda()
    average = copy.deepcopy(generator).eval().requires_grad_(False)
    optimizers = [torch.optim.Adam(m.parameters(), lr=2e-3, betas=(0.0, 0.99)) for m in (generator, critic)]
    return generator, critic, average, optimizers


def train(generator, critic, average, optimizers, steps):
    for _ in range(steps):
        noise, real = torch.randn(2, 3, 256, 256).cuda(), torch.rand(2, 3, 256, 256).cuda()
        loss = F.softplus(critic(generator(noise).detach())).mean() + F.softplus(-critic(real)).mean()
        optimizers[1].zero_grad()
        loss.backward()
        optimizers[1].step()
        loss = F.softplus(-critic(generator(noise))).mean()
        optimizers[0].zero_grad()
        loss.backward()
        optimizers[0].step()
        with torch.no_grad():
            for a, p in zip(average.parameters(), generator.parameters()):
                a.lerp_(p, 0.001)


path = os.path.join(tempfile.mkdtemp(), "checkpoint.pt")
parts = build()
for optimizer in parts[3]:
    for group in optimizer.param_groups:
        for p in group["params"]:
            optimizer.state[p] = {k: torch.zeros_like(p) for k in ("exp_avg", "exp_avg_sq")}
            optimizer.state[p]["step"] = torch.tensor(1000.0)
torch.save([m.state_dict() for m in parts[:3]] + [o.state_dict() for o in parts[3]], path)
for optimizer in parts[3]:
    optimizer.state.clear()
checkpoint = torch.load(path, map_location="cpu" if FIXED else None)
for part, state in zip((*parts[:3], *parts[3]), checkpoint):
    part.load_state_dict(state)
os.remove(path)
train(*parts, STEPS)
