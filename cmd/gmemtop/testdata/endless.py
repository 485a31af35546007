"""Train by DDP over gloo on CPUs until a file appears, or for so many steps, and print what was learned.

usage: torchrun ... endless.py FOLDER STEPS

With 0 steps it goes on until FOLDER/stop exists. Rank 0 adds a byte to FOLDER/progress for each step.
"""
import hashlib
import os
import sys
import time

import torch
import torch.distributed as dist

folder, steps = sys.argv[1], int(sys.argv[2])
pace = float(os.environ.get("PACE", "0"))
dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Sigmoid(), torch.nn.Linear(64, 8))
net = torch.nn.parallel.DistributedDataParallel(net)
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
torch.manual_seed(rank + 1)  # each rank has data of its own
done = 0
progress = open(os.path.join(folder, "progress"), "ab", buffering=0) if rank == 0 and steps == 0 else None
while True:
    # all ranks end with the same step
    ends = torch.tensor([float(done == steps if steps else os.path.exists(os.path.join(folder, "stop")))])
    dist.all_reduce(ends)
    if ends.item() > 0:
        break
    time.sleep(pace)
    optimizer.zero_grad()
    net(torch.randn(128, 64)).square().mean().backward()
    optimizer.step()
    done += 1
    if progress:
        progress.write(b".")
digest = hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in net.parameters())).hexdigest()
os.write(1, f"digest {rank} {digest} after {done}\n".encode())
# gloo's threads abort a process that ends while they hold tensors, so nothing keeps the group alive
dist.barrier()
del net, optimizer
dist.destroy_process_group()
