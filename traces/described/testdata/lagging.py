"""Train two equal steps on a GPU that lags behind its host: the descriptions of both must be the same.

usage: lagging.py OUT.jsonl
"""
import sys

import torch
from describe import Describe

torch.manual_seed(0)
net = torch.nn.Sequential(*[torch.nn.Linear(1024, 1024) for _ in range(4)]).cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)


def step():
    optimizer.zero_grad()
    net(torch.randn(1024, 1024, device="cuda")).square().mean().backward()
    optimizer.step()


step()
torch.cuda.synchronize()
recorder = Describe(sys.argv[1], net, optimizer)
for _ in range(2):
    with recorder.step():
        step()
recorder.close()
