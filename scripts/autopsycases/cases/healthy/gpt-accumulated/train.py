"""Trains a GPT with four micro-batches a step and validates without gradients; nothing is wrong."""

import torch
import torch.nn.functional as F
from nets import GPT

model = GPT(layers=6).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)


def loss_of():
    tokens = torch.randint(50257, (4, 257)).cuda()
    return F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())


for step in range(4):
    for micro in range(4):
        (loss_of() / 4).backward()
    optimizer.step()
    optimizer.zero_grad()
    with torch.no_grad():
        print(step, loss_of().item())
