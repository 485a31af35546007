"""Train a small network by DDP over NCCL, one GPU per rank, started by torchrun."""
import os
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(rank)
dist.init_process_group("nccl")
torch.manual_seed(0)
layers = torch.nn.Sequential(*[torch.nn.Linear(256, 256) for _ in range(4)])
model = DistributedDataParallel(layers.cuda(), device_ids=[rank])
optimizer = torch.optim.AdamW(model.parameters())
for step in range(20):
    began = time.perf_counter()
    optimizer.zero_grad()
    loss = model(torch.randn(64, 256, device="cuda")).square().mean()
    loss.backward()
    optimizer.step()
    value = loss.item()
    if rank == 0:
        print(f"step {step + 1} loss {value:.6f} {(time.perf_counter() - began) * 1e3:.1f} ms", flush=True)
dist.destroy_process_group()
