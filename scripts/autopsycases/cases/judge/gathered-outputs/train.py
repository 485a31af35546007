"""Trains an LSTM language model on four GPUs by DataParallel; the loss is taken of the gathered outputs."""

import sys

import torch
import torch.nn.functional as F
from torch import nn

FIXED = "--fixed" in sys.argv


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(33278, 512)
        self.lstm = nn.LSTM(512, 512, 2, batch_first=True)
        self.head = nn.Linear(512, 33278)

    def forward(self, tokens, target):
        output = self.head(self.lstm(self.embed(tokens))[0])
        if FIXED:
            return F.cross_entropy(output.flatten(0, 1), target.flatten()).view(1)
        return output


model = nn.DataParallel(Model().cuda())
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(3):
    tokens = torch.randint(33278, (160, 36)).cuda()
    result = model(tokens[:, :-1], tokens[:, 1:])
    loss = result.mean() if FIXED else F.cross_entropy(result.flatten(0, 1), tokens[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
