"""Fine-tunes a language model with a vocabulary of 256,000 on long sequences."""

import sys

import torch
import torch.nn.functional as F
from nets import GPT

FIXED = "--fixed" in sys.argv


CHUNKS = 16 if FIXED else 1

model = GPT(vocabulary=256_000, width=1024, layers=8, heads=8, context=4096).cuda().bfloat16()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
for step in range(3):
    tokens = torch.randint(256_000, (1, 4097)).cuda()
    features = model.features(tokens[:, :-1])
    leaf = features.detach().requires_grad_()
    for x, target in zip(leaf.chunk(CHUNKS, dim=1), tokens[:, 1:].chunk(CHUNKS, dim=1)):
        logits = model.head(x).float()
        loss = F.cross_entropy(logits.flatten(0, 1), target.flatten(), reduction="sum") / 4096
        loss.backward()
        del logits, loss
    features.backward(leaf.grad)
    optimizer.step()
    optimizer.zero_grad()
