"""Trains a language model on two GPUs with DistributedDataParallel; two micro-batches make a step."""

import contextlib
import sys

import ranks
import torch
import torch.nn.functional as F
from nets import GPT
from torch.nn.parallel import DistributedDataParallel

FIXED = "--fixed" in sys.argv
VOCABULARY, CONTEXT, BATCH, ACCUMULATE = 32_000, 512, 3, 2

rank = ranks.begin(__file__)
with torch.device("cuda"):
    model = GPT(VOCABULARY, width=1536, layers=4, heads=12, context=CONTEXT)
model = DistributedDataParallel(model, device_ids=[rank], gradient_as_bucket_view=FIXED)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, foreach=False)
for step in range(2):
    for i in range(ACCUMULATE):
        tokens = torch.randint(VOCABULARY, (BATCH, CONTEXT + 1)).cuda()
        with contextlib.nullcontext() if i == ACCUMULATE - 1 else model.no_sync():
            loss = F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
            (loss / ACCUMULATE).backward()
    optimizer.step()
    optimizer.zero_grad()
    if rank == 0:
        print(step, loss.item())
