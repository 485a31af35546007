"""Trains an LSTM on a stream whose hidden state goes from one piece to the next."""

import sys

import torch
import torch.nn.functional as F
from torch import nn

FIXED = "--fixed" in sys.argv

embed, lstm, head = nn.Embedding(10000, 650), nn.LSTM(650, 650, 2, dropout=0.5), nn.Linear(650, 10000)
for part in (embed, lstm, head):
    part.cuda()
parameters = [p for part in (embed, lstm, head) for p in part.parameters()]
hidden = None
for step in range(60):
    tokens = torch.randint(10000, (36, 20)).cuda()
    if FIXED and hidden is not None:
        hidden = tuple(h.detach() for h in hidden)
    output, hidden = lstm(embed(tokens[:-1]), hidden)
    loss = F.cross_entropy(head(output).flatten(0, 1), tokens[1:].flatten())
    gradients = torch.autograd.grad(loss, parameters, retain_graph=not FIXED)
    with torch.no_grad():
        for p, g in zip(parameters, gradients):
            p.add_(g, alpha=-1.0)
