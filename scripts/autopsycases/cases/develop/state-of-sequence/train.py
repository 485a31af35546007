"""Runs an LSTM over long recordings piece by piece; the state goes from one piece to the next."""

import sys

import torch
from torch import nn

FIXED = "--fixed" in sys.argv


class Tagger(nn.Module):
    def __init__(self, features=256, width=1024, layers=2, tags=48):
        super().__init__()
        self.lstm = nn.LSTM(features, width, layers, batch_first=True)
        self.tags = nn.Linear(width, tags)

    def forward(self, x, hidden):
        y, hidden = self.lstm(x, hidden)
        return self.tags(y), hidden


model = Tagger().cuda()
counts = torch.zeros(48, dtype=torch.long)
for recording in range(2):
    hidden = None
    for piece in range(200):
        x = torch.rand(32, 64, 256).cuda()
        scores, hidden = model(x, hidden)
        if FIXED:
            hidden = tuple(h.detach() for h in hidden)
        counts += torch.bincount(scores.argmax(-1).flatten().cpu().clamp(0, 47), minlength=48)
print(counts.sum())
