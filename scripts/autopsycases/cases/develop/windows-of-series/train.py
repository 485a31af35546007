"""Trains a forecaster on sampled windows of time series, and validates it on all of them."""

import sys

import torch
import torch.nn.functional as F
from nets import Block
from torch import nn

FIXED = "--fixed" in sys.argv
INPUT, HORIZON, LENGTH = 96, 24, 700
WINDOWS_BATCH, INFERENCE_WINDOWS_BATCH = 256, 512 if FIXED else -1


class Forecaster(nn.Module):
    def __init__(self, width=128, layers=3):
        super().__init__()
        self.embed = nn.Linear(1, width)
        self.blocks = nn.ModuleList(Block(width, 4, causal=False) for _ in range(layers))
        self.out = nn.Linear(width, 1)

    def forward(self, insample):
        future = insample.new_zeros(len(insample), HORIZON)
        x = self.embed(torch.cat([insample, future], dim=1)[..., None])
        for block in self.blocks:
            x = block(x)
        return self.out(x[:, -HORIZON:]).squeeze(-1)


class BaseWindows:
    def __init__(self):
        self.net = Forecaster().cuda()
        self.optimizer = torch.optim.Adam(self.net.parameters(), lr=1e-3)

    def create_windows(self, series):
        windows = series.unfold(1, INPUT + HORIZON, 1)
        return windows.reshape(-1, INPUT + HORIZON)

    def training_step(self, series):
        windows = self.create_windows(series)
        windows = windows[torch.randint(len(windows), (WINDOWS_BATCH,)).cuda()]
        return F.l1_loss(self.net(windows[:, :INPUT]), windows[:, INPUT:])

    @torch.no_grad()
    def validation_step(self, series):
        windows = self.create_windows(series)
        size = len(windows) if INFERENCE_WINDOWS_BATCH < 0 else INFERENCE_WINDOWS_BATCH
        losses = []
        for part in windows.split(size):
            losses.append(F.l1_loss(self.net(part[:, :INPUT]), part[:, INPUT:]) * len(part))
        return torch.stack(losses).sum() / len(windows)

    def fit(self, steps, check_every):
        for step in range(1, steps + 1):
            loss = self.training_step(torch.randn(32, LENGTH).cuda())
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            if step % check_every == 0:
                self.net.eval()
                print(step, self.validation_step(torch.randn(32, LENGTH).cuda()).item())
                self.net.train()


BaseWindows().fit(8, 4)
