"""Trains BERT for classification with gradients accumulated over eight micro-batches."""

import sys

import torch
import torch.nn.functional as F
from nets import Encoder

FIXED = "--fixed" in sys.argv
ACCUMULATE = 8

model = Encoder(dropout=0.1).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5)
for step in range(4):
    total = 0
    for micro in range(ACCUMULATE):
        tokens = torch.randint(30522, (8, 384)).cuda()
        labels = torch.randint(2, (8,)).cuda()
        loss = F.cross_entropy(model(tokens), labels) / ACCUMULATE
        if FIXED:
            loss.backward()
        else:
            total = total + loss
    if not FIXED:
        total.backward()
    optimizer.step()
    optimizer.zero_grad()
