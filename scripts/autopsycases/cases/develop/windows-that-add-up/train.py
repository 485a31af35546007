"""Trains a recurrent autoencoder on windows of a time series."""

import sys

import torch
import torch.nn.functional as F
from torch import nn

FIXED = "--fixed" in sys.argv


class EncoderRNN(nn.Module):
    def __init__(self, features=8, hidden=512):
        super().__init__()
        self.project = nn.Linear(features, hidden)
        self.cell = nn.GRUCell(hidden, hidden)
        self.drop = nn.Dropout(0.1)

    def forward(self, windows):
        state = windows.new_zeros(len(windows), self.cell.hidden_size)
        for step in self.drop(self.project(windows)).unbind(1):
            state = self.cell(step, state)
        return state


class DecoderRNN(nn.Module):
    def __init__(self, features=8, hidden=512):
        super().__init__()
        self.cell, self.out = nn.GRUCell(features, hidden), nn.Linear(hidden, features)

    def forward(self, state, windows):
        predicted = []
        for step in windows.unbind(1):
            state = self.cell(step, state)
            predicted.append(self.out(state))
        return torch.stack(predicted, dim=1)


def batched(data, size):
    """Yields the batches of an epoch."""
    for end in range(size, len(data) + 1, size):
        yield data[end - size : end] if FIXED else data[:end]


encoder, decoder = EncoderRNN().cuda(), DecoderRNN().cuda()
optimizer = torch.optim.AdamW([*encoder.parameters(), *decoder.parameters()], lr=1e-3)
series = torch.randn(6000, 24, 8)
for epoch in range(2):
    for batch in batched(series, 256):
        windows = batch.cuda()
        optimizer.zero_grad()
        decoded = decoder(encoder(windows), windows.roll(1, dims=1))
        loss = F.mse_loss(decoded, windows)
        loss.backward()
        optimizer.step()
    print(epoch, loss.item())
