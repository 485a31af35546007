"""Trains a model on two GPUs and averages its gradients by hand."""

import sys

import ranks
import torch
import torch.distributed as dist
import torch.nn.functional as F
from nets import GPT
from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors

FIXED = "--fixed" in sys.argv
VOCABULARY, CONTEXT, BATCH = 32_000, 256, 2


def allreduce_params(model):
    grads = [p.grad for p in model.parameters() if p.grad is not None]
    if FIXED:
        for grad in grads:
            dist.all_reduce(grad)
            grad /= dist.get_world_size()
        return
    coalesced = _flatten_dense_tensors(grads)
    dist.all_reduce(coalesced)
    coalesced /= dist.get_world_size()
    for buf, synced in zip(grads, _unflatten_dense_tensors(coalesced, grads)):
        buf.copy_(synced)


rank = ranks.begin(__file__)
model = GPT(VOCABULARY, width=1024, layers=16, heads=16, context=CONTEXT).cuda()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, foreach=False)
for step in range(4):
    tokens = torch.randint(VOCABULARY, (BATCH, CONTEXT + 1)).cuda()
    optimizer.zero_grad()
    loss = F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
    loss.backward()
    allreduce_params(model)
    optimizer.step()
    if rank == 0:
        print(step, loss.item())
