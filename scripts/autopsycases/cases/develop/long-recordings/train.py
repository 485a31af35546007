"""Trains a speech synthesiser that makes one frame of a spectrogram after the other."""

import random
import sys

import torch
import torch.nn.functional as F
from torch import nn

FIXED = "--fixed" in sys.argv
MELS, BATCH = 80, 24


class Attention(nn.Module):
    def __init__(self, width, inner=128):
        super().__init__()
        self.query, self.memory = nn.Linear(width, inner, bias=False), nn.Linear(512, inner, bias=False)
        self.score = nn.Linear(inner, 1, bias=False)

    def forward(self, query, memory, processed):
        energies = self.score(torch.tanh(self.query(query.unsqueeze(1)) + processed)).squeeze(-1)
        weights = F.softmax(energies, dim=1)
        return torch.bmm(weights.unsqueeze(1), memory).squeeze(1)


class Decoder(nn.Module):
    """Looks at the text with each frame and makes the next one."""

    def __init__(self, width=512):
        super().__init__()
        self.width = width
        self.prenet = nn.Sequential(nn.Linear(MELS, 256), nn.ReLU(), nn.Dropout(0.5))
        self.cell = nn.GRUCell(256 + 512, width)
        self.attention = Attention(width)
        self.frame = nn.Linear(width + 512, MELS)

    def forward(self, memory, mels):
        frames, state = [], memory.new_zeros(len(memory), self.width)
        context = memory.new_zeros(len(memory), 512)
        processed = self.attention.memory(memory)
        inputs = self.prenet(F.pad(mels, (0, 0, 1, 0)))
        for t in range(mels.shape[1]):
            state = self.cell(torch.cat([inputs[:, t], context], dim=1), state)
            context = self.attention(state, memory, processed)
            frames.append(self.frame(torch.cat([state, context], dim=1)))
        return torch.stack(frames, dim=1)


class Synthesiser(nn.Module):
    def __init__(self):
        super().__init__()
        self.letters = nn.Embedding(148, 512)
        self.encoder = nn.Sequential(
            nn.Conv1d(512, 512, 5, padding=2), nn.BatchNorm1d(512), nn.ReLU(),
            nn.Conv1d(512, 512, 5, padding=2), nn.BatchNorm1d(512), nn.ReLU(),
        )
        self.decoder = Decoder()

    def forward(self, text, mels):
        memory = self.encoder(self.letters(text).transpose(1, 2)).transpose(1, 2)
        return self.decoder(memory, mels)


def batch_of(seconds):
    """Returns letters and frames, as long as the longest recording needs."""
    most = max(seconds)
    return torch.randint(148, (len(seconds), 15 * most)), torch.zeros(len(seconds), 20 * most, MELS)


model = Synthesiser().cuda()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
draw = random.Random(3)
lengths = [[draw.randint(2, 9) for _ in range(BATCH)] for _ in range(8)]
lengths[5][11] = 31
for step, seconds in enumerate(lengths):
    if FIXED:
        seconds = [s for s in seconds if s <= 20]
    text, mels = (x.cuda() for x in batch_of(seconds))
    loss = F.mse_loss(model(text, mels), mels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, mels.shape)
