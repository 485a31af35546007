"""Learns to learn (MAML): a few steps of descent a task, and one on what came of them."""

import sys

import torch
import torch.nn.functional as F
from torch import nn
from torch.func import functional_call

FIXED = "--fixed" in sys.argv


def stage(channels, to):
    return nn.Sequential(
        nn.Conv2d(channels, to, 3, padding=1),
        nn.BatchNorm2d(to, track_running_stats=False),
        nn.ReLU(),
        nn.MaxPool2d(2),
    )


model = nn.Sequential(
    stage(3, 64), stage(64, 64), stage(64, 64), stage(64, 64), nn.Flatten(), nn.Linear(64 * 25, 5)
).cuda()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)


def adapt(images, labels, steps, first_order):
    params = dict(model.named_parameters())
    for _ in range(steps):
        loss = F.cross_entropy(functional_call(model, params, images), labels)
        grads = torch.autograd.grad(loss, params.values(), create_graph=not first_order)
        params = {name: p - 0.1 * g for (name, p), g in zip(params.items(), grads)}
    return params


for batch in range(3):
    optimizer.zero_grad()
    for task in range(4):
        images, labels = torch.rand(75, 3, 84, 84).cuda(), torch.randint(5, (75,)).cuda()
        params = adapt(images, labels, 15, first_order=FIXED)
        images, labels = torch.rand(75, 3, 84, 84).cuda(), torch.randint(5, (75,)).cuda()
        loss = F.cross_entropy(functional_call(model, params, images), labels)
        loss.backward()
    optimizer.step()
