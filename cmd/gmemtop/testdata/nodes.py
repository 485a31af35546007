"""Train by DDP over gloo on CPUs and print what each rank learned, to the last bit.

usage: torchrun ... nodes.py STEPS
"""
import hashlib
import os
import sys
import time

import torch
import torch.distributed as dist

pace = float(os.environ.get("PACE", "0"))
dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Sigmoid(), torch.nn.Linear(64, 8))
net = torch.nn.parallel.DistributedDataParallel(net)
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
torch.manual_seed(rank + 1)  # each rank has data of its own
for step in range(int(sys.argv[1])):
    time.sleep(pace)  # of a step
    optimizer.zero_grad()
    net(torch.randn(128, 64)).square().mean().backward()
    optimizer.step()
digest = hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in net.parameters())).hexdigest()
os.write(1, f"digest {rank} {digest}\n".encode())  # a line in one piece: the ranks write to one file
# gloo's threads abort a process that ends while they hold tensors, so nothing keeps the group alive
dist.barrier()
del net, optimizer
dist.destroy_process_group()
