"""Trains a speech model with a trainer whose loop keeps what a step returned until the next one has."""

import sys

import torch
import torch.nn.functional as F
from torch import nn

FIXED = "--fixed" in sys.argv


class Overflow(nn.Module):
    """A text encoder and an autoregressive decoder whose outputs for all states go out with the loss."""

    def __init__(self, width=512, states=48, mel=80):
        super().__init__()
        self.text = nn.Embedding(256, width)
        self.encoder = nn.LSTM(width, width // 2, bidirectional=True, batch_first=True)
        self.decoder = nn.LSTM(mel, width, batch_first=True)
        self.emit = nn.Linear(width, 2 * states * mel)
        self.states, self.mel = states, mel

    def forward(self, text, mels):
        encoded, _ = self.encoder(self.text(text))
        decoded, _ = self.decoder(mels)
        decoded = decoded + encoded.mean(1, keepdim=True)
        means, stds = self.emit(decoded).chunk(2, dim=-1)
        means = means.unflatten(-1, (self.states, self.mel))
        stds = F.softplus(stds).unflatten(-1, (self.states, self.mel))
        error = (mels.unsqueeze(2) - means) / stds
        return {"means": means, "stds": stds, "log_probs": -(error.square().sum(-1))}


class Trainer:
    def __init__(self):
        self.model = Overflow().cuda()
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-3)

    def train_step(self, batch):
        text, mels = (x.cuda() for x in batch)
        outputs = self.model(text, mels)
        loss = -outputs["log_probs"].logsumexp(-1).mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return outputs, {"loss": loss.item()}

    def train_epoch(self, loader):
        for step, batch in enumerate(loader):
            outputs, losses = self.train_step(batch)
            if outputs is None:
                continue
            if step % 25 == 0:
                print(step, losses["loss"])
            if FIXED:
                outputs = None


lengths = (200, 220, 240, 260, 280, 300, 300, 300)
Trainer().train_epoch((torch.randint(256, (64, 100)), torch.rand(64, n, 80)) for n in lengths)
