"""Forecasts traffic on a road network; the training has batches, the validation does not."""

import sys

import torch
import torch.nn.functional as F
from torch import nn

FIXED = "--fixed" in sys.argv
NODES, STEPS, HORIZON, BATCH = 207, 12, 3, 50


class TimeBlock(nn.Module):
    """A gated convolution over time: [batch, nodes, steps, channels], with two steps fewer."""

    def __init__(self, channels, to):
        super().__init__()
        self.convs = nn.ModuleList(nn.Conv2d(channels, to, (1, 3)) for _ in range(3))

    def forward(self, x):
        x = x.permute(0, 3, 1, 2)
        a, b, c = self.convs
        return F.relu(a(x) + torch.sigmoid(b(x)) + c(x)).permute(0, 2, 3, 1)


class STGCNBlock(nn.Module):
    def __init__(self, channels, spatial=16, to=64):
        super().__init__()
        self.first, self.second = TimeBlock(channels, to), TimeBlock(spatial, to)
        self.theta = nn.Parameter(torch.randn(to, spatial) / to**0.5)
        self.norm = nn.BatchNorm2d(NODES)

    def forward(self, x, adjacency):
        t = self.first(x)
        mixed = torch.einsum("ij,jklm->kilm", adjacency, t.permute(1, 0, 2, 3))
        return self.norm(self.second(F.relu(mixed @ self.theta)))


class STGCN(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = STGCNBlock(2), STGCNBlock(64)
        self.last = TimeBlock(64, 64)
        self.out = nn.Linear(2 * 64, HORIZON)

    def forward(self, adjacency, x):
        x = self.last(self.two(self.one(x, adjacency), adjacency))
        return self.out(x.flatten(2))


net = STGCN().cuda()
adjacency = torch.rand(NODES, NODES).cuda()
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
training = torch.rand(2000, NODES, STEPS, 2), torch.rand(2000, NODES, HORIZON)
validation = torch.rand(6854, NODES, STEPS, 2), torch.rand(6854, NODES, HORIZON)


def train_epoch():
    net.train()
    for i in range(0, 1000, BATCH):
        x, y = (t[i : i + BATCH].cuda() for t in training)
        optimizer.zero_grad()
        loss = F.mse_loss(net(adjacency, x), y)
        loss.backward()
        optimizer.step()
    return loss.item()


for epoch in range(2):
    print(epoch, train_epoch())
    with torch.no_grad():
        net.eval()
        if FIXED:
            losses = [
                F.mse_loss(net(adjacency, x.cuda()), y.cuda()).item()
                for x, y in zip(*(t.split(BATCH) for t in validation))
            ]
            print("validation", sum(losses) / len(losses))
        else:
            val_input, val_target = (t.cuda() for t in validation)
            print("validation", F.mse_loss(net(adjacency, val_input), val_target).item())
