"""Trains an LSTM on a stream; the hidden state goes on, detached."""

import torch
import torch.nn.functional as F
from torch import nn

embed, lstm, head = nn.Embedding(10000, 650), nn.LSTM(650, 650, 2, dropout=0.5), nn.Linear(650, 10000)
parameters = [p for part in (embed, lstm, head) for p in part.cuda().parameters()]
optimizer = torch.optim.SGD(parameters, lr=1.0)
hidden = None
for step in range(40):
    tokens = torch.randint(10000, (36, 20)).cuda()
    if hidden is not None:
        hidden = tuple(h.detach() for h in hidden)
    output, hidden = lstm(embed(tokens[:-1]), hidden)
    loss = F.cross_entropy(head(output).flatten(0, 1), tokens[1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
