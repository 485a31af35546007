"""Learns an optimizer: its gates say for each parameter how much to keep and how far to go."""

import sys

import torch
import torch.nn.functional as F
from torch import nn

FIXED = "--fixed" in sys.argv
UNROLL, BATCH, HIDDEN = 5, 256, 10


class MetaOptimizer(nn.Module):
    def __init__(self):
        super().__init__()
        self.cells = nn.ModuleList([nn.LSTMCell(3, HIDDEN), nn.LSTMCell(HIDDEN, HIDDEN)])
        self.forget, self.move = nn.Linear(HIDDEN, 1), nn.Linear(HIDDEN, 1)

    def update(self, flat, gradient, loss, state):
        x = torch.stack([flat.detach(), gradient, loss.detach().expand_as(gradient)], dim=1)
        after = []
        for cell, s in zip(self.cells, state):
            x, c = cell(x, s)
            after.append((x, c))
        keep, go = torch.sigmoid(self.forget(x)), torch.sigmoid(self.move(x))
        if FIXED:
            keep, go = keep.squeeze(1), go.squeeze(1)
        flat = keep * flat - go * gradient
        return flat.reshape(-1)[: len(gradient)], after


def model_of(flat, images):
    w1, b1, w2, b2 = flat.split([784 * 32, 32, 32 * 10, 10])
    return F.relu(images @ w1.view(784, 32) + b1) @ w2.view(32, 10) + b2


meta = MetaOptimizer().cuda()
optimizer = torch.optim.Adam(meta.parameters(), lr=1e-3)
count = 784 * 32 + 32 + 32 * 10 + 10
for task in range(4):
    flat = 0.01 * torch.randn(count).cuda()
    state = [(torch.zeros(count, HIDDEN).cuda(), torch.zeros(count, HIDDEN).cuda()) for _ in meta.cells]
    losses = 0
    for _ in range(UNROLL):
        images, labels = torch.rand(BATCH, 784).cuda(), torch.randint(10, (BATCH,)).cuda()
        leaf = flat.detach().requires_grad_()
        loss = F.cross_entropy(model_of(leaf, images), labels)
        gradient = torch.autograd.grad(loss, leaf)[0]
        flat, state = meta.update(flat, gradient, loss, state)
        losses = losses + F.cross_entropy(model_of(flat, images), labels)
    optimizer.zero_grad()
    losses.backward()
    optimizer.step()
    print(task, losses.item())
