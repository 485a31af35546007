"""Trains a transformer that transcribes speech, and validates it after each epoch."""

import contextlib
import sys

import torch
import torch.nn.functional as F
from nets import Block
from torch import nn

FIXED = "--fixed" in sys.argv
VOCABULARY, WIDTH, HEADS = 5000, 512, 8


class Cross(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.attention = nn.LayerNorm(WIDTH), nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)

    def forward(self, x, memory):
        return x + self.attention(self.norm(x), memory, memory, need_weights=False)[0]


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Sequential(
            nn.Conv2d(1, 32, 3, 2, 1), nn.Hardtanh(0, 20), nn.Conv2d(32, 32, 3, 2, 1), nn.Hardtanh(0, 20)
        )
        self.project = nn.Linear(32 * 41, WIDTH)
        self.encoder = nn.ModuleList(Block(WIDTH, HEADS, causal=False) for _ in range(6))
        self.tokens, self.positions = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(1024, WIDTH)
        self.decoder = nn.ModuleList(Block(WIDTH, HEADS) for _ in range(4))
        self.cross = nn.ModuleList(Cross() for _ in range(4))
        self.output = nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, spectrograms, targets):
        x = self.conv(spectrograms[:, None])
        x = self.project(x.permute(0, 3, 1, 2).flatten(2))
        for block in self.encoder:
            x = block(x)
        y = self.tokens(targets) + self.positions(torch.arange(targets.shape[1], device=targets.device))
        for block, cross in zip(self.decoder, self.cross):
            y = cross(block(y), x)
        return self.output(y)


class Trainer:
    def __init__(self):
        self.model = Transformer().cuda()
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-4)

    def batch_of(self, n, frames, letters):
        return torch.rand(n, 161, frames).cuda(), torch.randint(VOCABULARY, (n, letters)).cuda()

    def forward_one_batch(self, batch):
        spectrograms, targets = batch
        pred = self.model(spectrograms, targets[:, :-1])
        return pred, F.cross_entropy(pred.flatten(0, 1), targets[:, 1:].flatten())

    def train(self, epochs):
        for epoch in range(epochs):
            self.model.train()
            for _ in range(5):
                _, loss = self.forward_one_batch(self.batch_of(8, 800, 60))
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
            print(epoch, loss.item(), self.validate())

    def validate(self):
        self.model.eval()
        total, wrong = 0.0, 0
        with torch.no_grad() if FIXED else contextlib.nullcontext():
            for frames in (600, 900, 1200, 1600, 2400):
                pred, loss = self.forward_one_batch(self.batch_of(12, frames, frames // 12))
                total += loss.item()
                wrong += pred.argmax(dim=-1).ne(0).sum().item()
        return total, wrong


Trainer().train(2)
