"""Adapts a classifier of texts to a task (first order MAML), with several batches a step."""

import copy
import sys

import torch
import torch.nn.functional as F
from nets import Encoder

FIXED = "--fixed" in sys.argv

model = Encoder(classes=4).cuda()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-5)


def batches(n):
    for _ in range(n):
        yield torch.randint(30522, (8, 256)).cuda(), torch.randint(4, (8,)).cuda()


def adapt(learner, loss):
    for p, g in zip(learner.parameters(), torch.autograd.grad(loss, learner.parameters(), allow_unused=True)):
        if g is not None:
            p.data.sub_(g, alpha=1e-3)


def inner_loop(learner, steps=2, support=8):
    for _ in range(steps):
        if FIXED:
            params = list(learner.parameters())
            sums = [torch.zeros_like(p) for p in params]
            for tokens, labels in batches(support):
                loss = F.cross_entropy(learner(tokens), labels) / support
                for s, g in zip(sums, torch.autograd.grad(loss, params, allow_unused=True)):
                    if g is not None:
                        s += g
            for p, s in zip(params, sums):
                p.data.sub_(s, alpha=1e-3)
            continue
        loss = 0.0
        for tokens, labels in batches(support):
            loss += F.cross_entropy(learner(tokens), labels) / support
        adapt(learner, loss)
    return learner


for _ in range(2):
    learner = inner_loop(copy.deepcopy(model))
    for tokens, labels in batches(1):
        loss = F.cross_entropy(learner(tokens), labels)
        for p, g in zip(
            model.parameters(), torch.autograd.grad(loss, learner.parameters(), allow_unused=True)
        ):
            p.grad = g
    optimizer.step()
