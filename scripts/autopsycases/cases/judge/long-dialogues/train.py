"""Trains an LSTM sequence-to-sequence model on technical dialogues; a few of them are very long."""

import random
import sys

import torch
import torch.nn.functional as F
from torch import nn

FIXED = "--fixed" in sys.argv
WORDS = 30000
draw = random.Random(4)


def batch(step):
    """Eight dialogues and their answers, padded to the longest: one of them is a pasted log."""
    lengths = [draw.randint(20, 160) for _ in range(8)]
    if step == 7:
        lengths[3] = 1400
    if FIXED:
        lengths = [min(n, 150) for n in lengths]
    longest = max(lengths)
    rows = [F.pad(torch.randint(1, WORDS, (n,)), (0, longest - n)) for n in lengths]
    return torch.stack(rows)


class Seq2Seq(nn.Module):
    """Encodes a dialogue and predicts its continuation, a token after the other."""

    def __init__(self, width=1024):
        super().__init__()
        self.embed = nn.Embedding(WORDS, width, padding_idx=0)
        self.encoder = nn.LSTM(width, width, 2, batch_first=True, dropout=0.1)
        self.decoder = nn.LSTM(width, width, 2, batch_first=True, dropout=0.1)
        self.head = nn.Linear(width, WORDS)

    def forward(self, question, answer):
        _, state = self.encoder(self.embed(question))
        return self.head(self.decoder(self.embed(answer[:, :-1]), state)[0])


model = Seq2Seq().cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
for step in range(10):
    tokens = batch(step).cuda()
    logits = model(tokens, tokens)
    loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten(), ignore_index=0)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, tuple(tokens.shape), loss.item())
