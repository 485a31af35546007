"""Pretrains a language model that nearly fills its card."""

import sys

import torch
import torch.nn.functional as F
from nets import GPT

FIXED = "--fixed" in sys.argv

with torch.device("cuda"):
    model = GPT(vocabulary=32000, width=1792, layers=28, heads=14, context=1024)
optimizer = torch.optim.AdamW(model.parameters(), lr=6e-4, foreach=False if FIXED else None)
for step in range(3):
    tokens = torch.randint(32000, (1, 257)).cuda()
    loss = F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
