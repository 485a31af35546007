"""Estimates the inverse of the Hessian times a vector, for the influence of training images."""

import sys

import torch
import torch.nn.functional as F
from nets import ResNet

FIXED = "--fixed" in sys.argv
DEPTH, DAMP, SCALE = 60, 0.01, 25.0


def hvp(loss, weights, vector):
    """Returns the product of the loss's Hessian with a vector, by two backward passes."""
    first = torch.autograd.grad(loss, weights, create_graph=True)
    product = sum((g * v).sum() for g, v in zip(first, vector))
    return torch.autograd.grad(product, weights, create_graph=True)


def batch():
    return torch.rand(8, 3, 128, 128).cuda(), torch.randint(1000, (8,)).cuda()


model = ResNet(depths=(2, 2, 2, 2)).cuda().eval()
weights = list(model.parameters())
images, labels = batch()
v = torch.autograd.grad(F.cross_entropy(model(images), labels), weights)
h_estimate = [x.clone() for x in v]
for i in range(DEPTH):
    images, labels = batch()
    hv = hvp(F.cross_entropy(model(images), labels), weights, h_estimate)
    with torch.set_grad_enabled(not FIXED):
        h_estimate = [a + (1 - DAMP) * b - c / SCALE for a, b, c in zip(v, h_estimate, hv)]
    print("recursion", i)
