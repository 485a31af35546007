"""Fits a network to measurements by Gauss-Newton steps that need its whole Jacobian."""

import sys

import torch
from torch import nn
from torch.func import functional_call, jacrev

FIXED = "--fixed" in sys.argv

net = nn.Sequential(nn.Conv1d(1, 32, 9, padding=4), nn.Tanh(), nn.Conv1d(32, 64, 9, padding=4), nn.Tanh())
head = nn.Sequential(nn.Flatten(), nn.Linear(64 * 256, 16))
model = nn.Sequential(net, head).cuda()
weights = {name: p.detach() for name, p in model.named_parameters()}


def residuals(weights, signals, measured):
    return (functional_call(model, weights, (signals,)) - measured).flatten()


for iteration in range(2):
    signals, measured = torch.rand(64, 1, 256).cuda(), torch.rand(64, 16).cuda()
    jacobian = jacrev(residuals, chunk_size=32 if FIXED else None)(weights, signals, measured)
    gradients = {}
    for name, j in jacobian.items():
        gradients[name] = j.flatten(1).mean(0).view_as(weights[name])
    weights = {name: w - 0.1 * gradients[name] for name, w in weights.items()}
    del jacobian
    print(iteration)
