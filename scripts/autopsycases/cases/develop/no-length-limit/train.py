"""Trains a translation model whose reader does not limit the length of a sentence."""

import random
import sys

import torch
import torch.nn.functional as F
from nets import GPT

FIXED = "--fixed" in sys.argv
draw = random.Random(3)


def read_batch(step):
    """Returns 32 sentences, padded with 0 to the longest; one of step 6 has 500 words."""
    lengths = [draw.randint(8, 48) for _ in range(32)]
    if step == 6:
        lengths[11] = 500
    if FIXED:
        lengths = [min(n, 50) for n in lengths]
    tokens = torch.zeros(32, max(lengths), dtype=torch.long)
    for row, n in zip(tokens, lengths):
        row[:n] = torch.randint(1, 10000, (n,))
    return tokens


model = GPT(vocabulary=10000, width=512, layers=8, heads=8, math=True).cuda()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(8):
    tokens = read_batch(step).cuda()
    logits = model(tokens[:, :-1])
    loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten(), ignore_index=0)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, tuple(tokens.shape))
