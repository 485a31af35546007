"""Trains a language model on two GPUs with fully_shard, and saves its whole state dict."""

import sys

import ranks
import torch
import torch.nn.functional as F
from nets import GPT
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

FIXED = "--fixed" in sys.argv
VOCABULARY, CONTEXT = 32_000, 512


def get_full_model_state_dict(model, is_rank_zero):
    cpu_state_dict = {}
    for name, param in model.state_dict().items():
        if isinstance(param, DTensor):
            param = param.full_tensor()
        if FIXED:
            param = param.cpu()
        if is_rank_zero:
            cpu_state_dict[name] = param
    return cpu_state_dict


def get_full_optimizer_state_dict(optimizer, is_rank_zero):
    full = {}
    for i, state in enumerate(optimizer.state.values()):
        for name in ("exp_avg", "exp_avg_sq"):
            value = state[name].full_tensor()
            if FIXED:
                value = value.cpu()
            if is_rank_zero:
                full[i, name] = value
    return full


rank = ranks.begin(__file__)
with torch.device("meta"):
    model = GPT(VOCABULARY, width=1536, layers=8, heads=12, context=CONTEXT)
for block in model.blocks:
    fully_shard(block)
fully_shard(model)
model.to_empty(device="cuda")
for p in model.parameters():
    torch.nn.init.normal_(p, std=0.02)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, foreach=False)
for epoch in range(2):
    for step in range(3):
        tokens = torch.randint(VOCABULARY, (1, CONTEXT + 1)).cuda()
        logits = model(tokens[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    state = get_full_model_state_dict(model, rank == 0)
    moments = get_full_optimizer_state_dict(optimizer, rank == 0)
    if rank == 0:
        print(epoch, loss.item(), len(state), len(moments))
    del state, moments
