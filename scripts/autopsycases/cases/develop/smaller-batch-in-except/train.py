"""Trains with batches of tokens; one that does not fit is tried again in halves, in the except block."""

import sys

import torch
import torch.nn.functional as F
from nets import GPT

FIXED = "--fixed" in sys.argv
model = GPT(width=1024, layers=12, heads=16, vocabulary=16000).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)


def train_step(batch):
    logits = model(batch[:, :-1])
    loss = F.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
    loss.backward()
    return loss.item()


def halves(batch, failed=None):
    optimizer.zero_grad(set_to_none=True)
    torch.cuda.empty_cache()
    return [train_step(part) for part in batch.chunk(2)]


class TooLarge(RuntimeError):
    """What a data-parallel wrapper raises so that all workers fall back together."""


def guarded(batch, step):
    logits = model(batch[:, :-1])
    loss = F.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
    if step == 4:
        raise TooLarge("another worker is out of memory")
    loss.backward()
    return loss.item()


for step in range(8):
    batch = torch.randint(16000, (10, 513)).cuda()
    if FIXED:
        again = False
        try:
            guarded(batch, step)
        except TooLarge:
            again = True
        if again:
            halves(batch)
    else:
        try:
            guarded(batch, step)
        except TooLarge as err:
            print("retry:", err)
            halves(batch, err)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
