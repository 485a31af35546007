"""Trains a genomic model on long sequences with attention that is written out."""

import sys

import torch
import torch.nn.functional as F
from nets import GPT

FIXED = "--fixed" in sys.argv

model = GPT(vocabulary=4096, width=512, layers=8, heads=8, context=4096, math=not FIXED).cuda()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
for step in range(3):
    tokens = torch.randint(4096, (4, 4097)).cuda()
    with torch.autocast("cuda", torch.float16):
        logits = model(tokens[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
