"""Trains a language model on two GPUs with fully_shard, and accumulates gradients."""

import sys

import ranks
import torch
import torch.nn.functional as F
from nets import GPT
from torch.distributed.fsdp import fully_shard

FIXED = "--fixed" in sys.argv
VOCABULARY, CONTEXT, ACCUMULATE = 8_000, 256, 4

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
    for i in range(ACCUMULATE):
        # As no_sync() does: gradients are reduced with the last micro-batch only.
        model.set_requires_gradient_sync(FIXED or i == ACCUMULATE - 1)
        tokens = torch.randint(VOCABULARY, (1, CONTEXT + 1)).cuda()
        logits = model(tokens[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten()) / ACCUMULATE
        loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    if rank == 0:
        print(step, loss.item())
