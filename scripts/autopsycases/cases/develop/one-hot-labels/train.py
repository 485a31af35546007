"""Trains a language model with a loss that turns its labels into one-hot vectors first."""

import sys

import torch
import torch.nn.functional as F
from nets import GPT

FIXED = "--fixed" in sys.argv


def sparse_categorical_crossentropy(target, output):
    if FIXED:
        return F.cross_entropy(output.flatten(0, 1), target.flatten())
    log_prob = F.log_softmax(output, dim=-1)
    target = F.one_hot(target, output.shape[-1])
    return -torch.sum(target * log_prob, dim=-1).mean()


model = GPT(vocabulary=32000, width=512, layers=8, heads=8).cuda()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(3):
    tokens = torch.randint(32000, (8, 513)).cuda()
    loss = sparse_categorical_crossentropy(tokens[:, 1:], model(tokens[:, :-1]))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step)
