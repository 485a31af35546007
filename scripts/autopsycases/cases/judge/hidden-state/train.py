"""Trains an LSTM on a stream whose hidden state goes from one piece to the next."""

import sys

import torch
import torch.nn.functional as F
from torch import nn

FIXED = "--fixed" in sys.argv

embed, lstm, head = nn.Embedding(10000, 650), nn.LSTM(650, 650, 2, dropout=0.5), nn.Linear(650, 10000)
for part in (embed, lstm, head):
    part.cuda()
optimizer = torch.optim.SGD([p for part in (embed, lstm, head) for p in part.parameters()], lr=1.0)
hidden = None
for step in range(60):
    tokens = torch.randint(10000, (36, 20)).cuda()
    if FIXED and hidden is not None:
        hidden = tuple(h.detach() for h in hidden)
    output, hidden = lstm(embed(tokens[:-1]), hidden)
    loss = F.cross_entropy(head(output).flatten(0, 1), tokens[1:].flatten())
    loss.backward(retain_graph=not FIXED)
optimizer.step()
