"""Trains a ResNet, averages its weights, and computes the batch norms' statistics of the average anew."""

import copy
import sys

import torch
import torch.nn.functional as F
from nets import ResNet

FIXED = "--fixed" in sys.argv


def batches(n, size):
    for _ in range(n):
        yield torch.rand(size, 3, 224, 224), torch.randint(1000, (size,))


def average(averaged, model, n):
    with torch.no_grad():
        for a, p in zip(averaged.parameters(), model.parameters()):
            a += (p - a) / (n + 1)


def recompute_statistics(model, loader):
    model.train()
    for images, _ in loader:
        model(images.cuda())


model = ResNet().cuda()
averaged = copy.deepcopy(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
for epoch in range(2):
    for images, labels in batches(4, 64):
        loss = F.cross_entropy(model(images.cuda()), labels.cuda())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    average(averaged, model, epoch)
if FIXED:
    recompute_statistics = torch.no_grad()(recompute_statistics)
recompute_statistics(averaged, batches(4, 160))
print("averaged")
