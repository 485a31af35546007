"""Estimates the Fisher information of a classifier after a task (elastic weight consolidation)."""

import sys

import torch
import torch.nn.functional as F
from nets import ResNet

FIXED = "--fixed" in sys.argv

model = ResNet(classes=10).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2, momentum=0.9)


def loader(n):
    for _ in range(n):
        yield torch.rand(32, 3, 128, 128).cuda(), torch.randint(10, (32,)).cuda()


for images, labels in loader(5):
    loss = F.cross_entropy(model(images), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def fisher_params(n):
    params = list(model.parameters())
    if FIXED:
        sums = [torch.zeros_like(p) for p in params]
        for images, labels in loader(n):
            output = F.log_softmax(model(images), dim=1)
            likelihood = output.gather(1, labels[:, None]).mean()
            for s, g in zip(sums, torch.autograd.grad(likelihood, params)):
                s += g / n
        return [s**2 for s in sums]
    log_likelihoods = []
    for images, labels in loader(n):
        output = F.log_softmax(model(images), dim=1)
        log_likelihoods.append(output.gather(1, labels[:, None]))
    return [g**2 for g in torch.autograd.grad(torch.cat(log_likelihoods).mean(), params)]


fisher = fisher_params(16)
