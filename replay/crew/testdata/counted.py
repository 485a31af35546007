"""Train on a GPU, and print for each step whether a plan was on, the peak of torch's allocated bytes, its
reserved bytes, and the bytes in use according to the driver.

usage: counted.py STOP

It trains until the file STOP exists.
"""
import os
import sys
import time

import torch

torch.manual_seed(1)
layers = [m for _ in range(4) for m in (torch.nn.Linear(256, 256), torch.nn.Sigmoid())]
net = torch.nn.Sequential(torch.nn.Embedding(100, 256), *layers, torch.nn.Linear(256, 256)).cuda()
optimizer = torch.optim.Adam(net.parameters())
while not os.path.exists(sys.argv[1]):
    on = hasattr(torch._C._autograd._saved_tensors_hooks_disable, "__wrapped__")
    torch.cuda.reset_peak_memory_stats()
    optimizer.zero_grad()
    net(torch.randint(100, (16384,), device="cuda")).square().mean().backward()
    optimizer.step()
    free, total = torch.cuda.mem_get_info()
    print("counted", int(on), torch.cuda.max_memory_allocated(), torch.cuda.memory_reserved(), total - free, flush=True)
    time.sleep(0.02)  # the pace of a step
