"""Averages the gradient of the validation loss (influence of samples in active learning)."""

import sys

import torch
import torch.nn.functional as F
from nets import ResNet

FIXED = "--fixed" in sys.argv

model = ResNet(classes=10).cuda().eval()
params = list(model.parameters())
gradients = []
for batch in range(80):
    images, labels = torch.rand(16, 3, 32, 32).cuda(), torch.randint(10, (16,)).cuda()
    loss = F.cross_entropy(model(images), labels)
    result = torch.autograd.grad(loss, params)
    if FIXED and gradients:
        for s, g in zip(gradients[0], result):
            s += g
    else:
        gradients.append(result)
mean = [sum(each) / len(gradients) for each in zip(*gradients)]
