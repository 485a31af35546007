"""What docs/fleet.md calls train.py: DDP over gloo on CPUs until /shared/stop exists.

The last rank has four times the batch of the others and keeps 400 MB, so it is unlike them.
"""
import os
import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
batch = 512 if rank == world - 1 else 128
torch.manual_seed(0)
layers = [part for _ in range(6) for part in (torch.nn.Linear(256, 256), torch.nn.GELU())]
net = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(*layers))
optimizer = torch.optim.AdamW(net.parameters())
kept = torch.ones(100_000_000) if rank == world - 1 else None
while True:
    stop = torch.tensor([float(os.path.exists("/shared/stop"))])
    dist.all_reduce(stop)  # all ranks end with the same step
    if stop.item() > 0:
        break
    time.sleep(0.2)
    optimizer.zero_grad()
    net(torch.randn(batch, 256)).square().mean().backward()
    optimizer.step()
# gloo's threads abort a process that ends while they hold tensors, so nothing keeps the group alive
dist.barrier()
del net, optimizer
dist.destroy_process_group()
