"""Trains a classifier of bird songs and validates it in the middle of each epoch."""

import sys

import torch
import torch.nn.functional as F
from torch import nn

FIXED = "--fixed" in sys.argv
SPECIES = 264


class Separator(nn.Module):
    """Scores each species in each frame of a long recording."""

    def __init__(self, width=48):
        super().__init__()
        layers, channels = [], 1
        for k in range(5):
            to = width << min(k, 3)
            layers += [nn.Conv2d(channels, to, 3, (2, 1), 1, bias=False), nn.BatchNorm2d(to), nn.ReLU()]
            channels = to
        self.layers = nn.Sequential(*layers)
        self.head = nn.Conv1d(channels, SPECIES, 1)

    def forward(self, x):
        return self.head(self.layers(x).mean(2))


class Trainer:
    def __init__(self):
        self.model = Separator().cuda()
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-3)

    def valid(self, batches):
        self.model.eval()
        scores = []
        with torch.no_grad():
            for mels, labels in batches:
                mels, labels = mels.cuda(), labels.cuda()
                outputs = torch.sigmoid(self.model(mels))
                scores.append(((outputs > 0.5) == labels.unsqueeze(2)).float().mean().item())
        self.model.train()
        return sum(scores) / len(scores)

    def train(self, batches, valid_every=4):
        for step, (mels, labels) in enumerate(batches):
            mels, labels = mels.cuda(), labels.cuda()
            outputs = self.model(mels)
            frames = labels.unsqueeze(2).expand_as(outputs)
            losses = F.binary_cross_entropy_with_logits(outputs, frames, reduction="none")
            self.optimizer.zero_grad()
            losses.mean().backward()
            self.optimizer.step()
            if step % valid_every == valid_every - 1:
                if FIXED:
                    del mels, labels, outputs, frames, losses
                print(step, self.valid(batches_of(3, 40)))


def batches_of(n, size):
    for _ in range(n):
        yield torch.rand(size, 1, 64, 6000), torch.randint(2, (size, SPECIES)).float()


Trainer().train(batches_of(5, 8))
