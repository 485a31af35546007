"""Trains a draft model on dialogues of all lengths; its batches are padded to their longest."""

import random
import sys

import torch
import torch.nn.functional as F
from nets import GPT

FIXED = "--fixed" in sys.argv

if FIXED:
    torch.cuda.memory._set_allocator_settings("expandable_segments:True")
draw = random.Random(7)
with torch.device("cuda"):
    model = GPT(vocabulary=32000, width=1024, layers=10, heads=16, context=4096)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
for step in range(16):
    longest = min(900 + 90 * step, 2000) - draw.randint(0, 60)
    tokens = torch.randint(32000, (4, longest + 1)).cuda()
    loss = F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(step, longest)
