"""Trains five networks on three tasks each, with gradients of the tasks that are projected on each other."""

import sys

import torch
import torch.nn.functional as F
from nets import ResNet
from torch import nn

FIXED = "--fixed" in sys.argv
NETS, TASKS = 5, 3


class MultiTask(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = ResNet(classes=10)
        self.heads = nn.ModuleList(nn.Linear(self.encoder.channels, 10) for _ in range(TASKS))

    def forward(self, images):
        features = self.encoder.features(images)
        return [head(features) for head in self.heads]


class PCGrad:
    def __init__(self, optimizer):
        self.optimizer = optimizer
        self.params = [p for group in optimizer.param_groups for p in group["params"]]

    def gradient(self, loss, retain):
        self.optimizer.zero_grad()
        loss.backward(retain_graph=retain)
        return [None if p.grad is None else p.grad.clone() for p in self.params]

    def step(self, gradients):
        for p, *each in zip(self.params, *gradients):
            each = [g for g in each if g is not None]
            p.grad = torch.stack(each).mean(dim=0) if each else None
        self.optimizer.step()


nets = nn.ModuleList(MultiTask() for _ in range(NETS)).cuda()
optimizer = PCGrad(torch.optim.SGD(nets.parameters(), lr=0.01))
for step in range(4):
    images = [torch.rand(24, 3, 224, 224).cuda() for _ in range(NETS)]
    labels = torch.randint(10, (24,)).cuda()
    gradients = []
    if FIXED:
        for net, x in zip(nets, images):
            outputs = net(x)
            losses = [F.cross_entropy(o, labels) for o in outputs]
            for t, loss in enumerate(losses):
                gradients.append(optimizer.gradient(loss, retain=t + 1 < TASKS))
    else:
        losses = []
        for net, x in zip(nets, images):
            losses += [F.cross_entropy(o, labels) for o in net(x)]
        for loss in losses:
            gradients.append(optimizer.gradient(loss, retain=True))
    optimizer.step(gradients)
    print(step)
