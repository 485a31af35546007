"""Train on a GPU while a test watches by probes. Print what torch's allocator counted meanwhile, and what was
learned.

usage: probed.py FOLDER

It imports torch, loads CUDA, and makes FOLDER/ready. Once FOLDER/go exists it trains and prints; once
FOLDER/on exists it trains on.
"""
import json
import os
import sys
import time

import torch


def wait(name):
    while not os.path.exists(os.path.join(sys.argv[1], name)):
        time.sleep(0.02)


def train(net, optimizer, steps):
    for _ in range(steps):
        optimizer.zero_grad()
        loss = net(torch.randn(64, 64).cuda()).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item().hex())


losses = []
before = torch.ones(1).cuda()  # it lives on: probes never see it
torch.manual_seed(0)
open(os.path.join(sys.argv[1], "ready"), "w").close()
wait("go")
torch.cuda.reset_peak_memory_stats()
first = torch.cuda.memory_stats()
layers = [m for _ in range(4) for m in (torch.nn.Linear(64, 64), torch.nn.Sigmoid())]
net = torch.nn.Sequential(*layers).cuda()
optimizer = torch.optim.AdamW(net.parameters())
train(net, optimizer, 6)
large = torch.empty(30 << 20, dtype=torch.uint8, device="cuda")  # a segment of its own
del large
time.sleep(1.2)  # probes have a window a second: this is in more than one
train(net, optimizer, 6)
last = torch.cuda.memory_stats()
counted = {k: v - first[k] for k, v in last.items()}
for k in ("requested_bytes.all.peak", "reserved_bytes.all.peak"):
    counted[k] = last[k] - first[k.replace("peak", "current")]
print(json.dumps(counted), flush=True)
wait("on")
train(net, optimizer, 6)
print("losses", *losses, flush=True)
