"""Trains a network with two running averages, which are stored every few steps."""

import os
import sys
import tempfile
from copy import deepcopy

import torch
import torch.nn.functional as F
from nets import GPT
from torch import nn

FIXED = "--fixed" in sys.argv
folder = tempfile.mkdtemp()


class KarrasEMA(nn.Module):
    def __init__(self, model, gamma):
        super().__init__()
        self.online_model = [model]
        self.ema_model = deepcopy(model).requires_grad_(False)
        self.gamma = gamma
        self.registered = {"self": self}

    @torch.no_grad()
    def update(self, step):
        beta = (1 - 1 / (step + 1)) ** (1 + self.gamma)
        for average, p in zip(self.ema_model.parameters(), self.online_model[0].parameters()):
            average.lerp_(p, 1 - beta)


class PostHocEMA:
    def __init__(self, model, every):
        self.ema_models = [KarrasEMA(model, gamma) for gamma in (16.97, 6.94)]
        self.every, self.step = every, 0

    def update(self):
        self.step += 1
        for ema in self.ema_models:
            ema.update(self.step)
        if self.step % self.every == 0:
            self.checkpoint()

    def checkpoint(self):
        for i, ema in enumerate(self.ema_models):
            path = os.path.join(folder, f"{i}.pt")
            if FIXED:
                package = {k: v.to("cpu", torch.float16) for k, v in ema.state_dict().items()}
            else:
                package = deepcopy(ema).to(torch.float16).state_dict()
            torch.save({k: v for k, v in list(package.items())[:1]}, path)


model = GPT(vocabulary=4096, width=512, layers=8, heads=8, context=256).cuda()
ema = PostHocEMA(model, every=2)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
for step in range(24):
    tokens = torch.randint(4096, (8, 257)).cuda()
    loss = F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    ema.update()
print(loss.item())
