"""Trains a language model on two GPUs with fully_shard, and clips its gradients by their norm."""

import sys

import ranks
import torch
import torch.distributed as dist
import torch.nn.functional as F
from nets import GPT
from torch.distributed.fsdp import fully_shard

FIXED = "--fixed" in sys.argv
VOCABULARY, CONTEXT = 8_000, 256


def clip_grad_norm(parameters, most=1.0):
    """Scales gradients down to a norm, and returns what that was."""
    parameters = [p for p in parameters if p.grad is not None]
    if FIXED:
        squares = sum(p.grad.to_local().norm() ** 2 for p in parameters)
        dist.all_reduce(squares)
        norm = squares.sqrt()
    else:
        grads = [p.grad.full_tensor() for p in parameters]
        norm = torch.stack([g.norm() for g in grads]).norm()
    for p in parameters:
        p.grad.to_local().mul_((most / (norm + 1e-6)).clamp(max=1))
    return norm


rank = ranks.begin(__file__)
with torch.device("meta"):
    model = GPT(VOCABULARY, width=1536, layers=12, heads=12, context=CONTEXT)
for block in model.blocks:
    fully_shard(block)
fully_shard(model)
model.to_empty(device="cuda")
for p in model.parameters():
    torch.nn.init.normal_(p, std=0.02)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, foreach=False)
for step in range(3):
    tokens = torch.randint(VOCABULARY, (1, CONTEXT + 1)).cuda()
    logits = model(tokens[:, :-1])
    loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    norm = clip_grad_norm(model.parameters())
    optimizer.step()
    if rank == 0:
        print(step, loss.item(), norm.item())
