"""Train a model whose layers alternate between two GPUs.

usage: split.py STEPS
"""
import sys
import time

import torch

torch.manual_seed(3)


class Split(torch.nn.Module):
    """Layers on one GPU and then on the other, twice: tensors saved for backward lie on both."""

    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(64, 64).to("cuda:%d" % (k % 2)) for k in range(4))

    def forward(self, x):
        for layer in self.layers:
            x = torch.sigmoid(torch.relu(layer(x.to(layer.weight.device))) * 1.5)
            x = torch.nn.functional.dropout(x, 0.1)
        return x


net = Split()
optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
for step in range(int(sys.argv[1])):
    optimizer.zero_grad()
    net(torch.randn(1024, 64, device="cuda:0")).square().mean().backward()
    optimizer.step()
    time.sleep(0.01)  # the pace of a step
