"""Trains a language model with a vocabulary of half a million words."""

import sys

import torch
import torch.nn.functional as F
from nets import GPT

FIXED = "--fixed" in sys.argv
WORDS = 40_000 if FIXED else 500_000

model = GPT(vocabulary=WORDS, width=512, layers=6, heads=8).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.25)
for step in range(3):
    tokens = torch.randint(WORDS, (4, 513)).cuda()
    logits = model(tokens[:, :-1])
    loss = F.nll_loss(F.log_softmax(logits, dim=-1).flatten(0, 1), tokens[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
