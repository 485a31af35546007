"""Trains a detector of speech on cut recordings and validates it on whole ones."""

import sys

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

FIXED = "--fixed" in sys.argv
RATE = 16_000


class Detector(nn.Module):
    """A spectrogram by convolution, an encoder, and one probability every few milliseconds."""

    def __init__(self, window=256, bins=129):
        super().__init__()
        self.bins = bins
        self.basis = nn.Conv1d(1, 2 * bins, window, stride=64, bias=False)
        self.encoder = nn.Sequential(
            nn.Conv1d(bins, 128, 3, padding=1),
            nn.ReLU(),
            nn.Conv1d(128, 64, 3, 2, padding=1),
            nn.ReLU(),
            nn.Conv1d(64, 64, 3, 2, padding=1),
            nn.ReLU(),
            nn.Conv1d(64, 128, 3, padding=1),
            nn.ReLU(),
        )
        self.decoder = nn.Conv1d(128, 1, 1)

    def forward(self, audio):
        real, imaginary = self.basis(audio.unsqueeze(1)).split(self.bins, dim=1)
        magnitude = torch.sqrt(real.square() + imaginary.square() + 1e-9)
        return self.decoder(self.encoder(magnitude)).squeeze(1)


class Recordings(Dataset):
    """Recordings of different lengths, in seconds; cut to most where that is given."""

    def __init__(self, seconds, most=None):
        self.seconds, self.most = seconds, most

    def __len__(self):
        return len(self.seconds)

    def __getitem__(self, i):
        seconds = min(self.seconds[i], self.most) if self.most else self.seconds[i]
        return torch.zeros(seconds * RATE)


def train(model, loader, optimizer):
    model.train()
    for audio in loader:
        logits = model(audio.cuda())
        loss = F.binary_cross_entropy_with_logits(logits, torch.zeros_like(logits))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def validate(model, loader):
    model.eval()
    losses = []
    with torch.no_grad():
        for audio in loader:
            logits = model(audio.cuda())
            losses.append(F.binary_cross_entropy_with_logits(logits, torch.zeros_like(logits)).item())
    return sum(losses) / len(losses)


model = Detector().cuda()
optimizer = torch.optim.Adam(model.parameters(), lr=5e-4)
training = Recordings([15 + 10 * i for i in range(48)], most=15)
validation = Recordings([40, 300, 95, 610, 7200, 1200], most=20 if FIXED else None)
for epoch in range(2):
    train(model, DataLoader(training, 4), optimizer)
    print(epoch, validate(model, DataLoader(validation, 1)))
