"""Finds the largest eigenvalue of a language model's curvature by products with the Hessian of the loss."""

import sys

import torch
import torch.nn.functional as F
from nets import GPT

FIXED = "--fixed" in sys.argv
CHUNKS = 8


model = GPT(width=512, layers=6, heads=8, math=True).cuda().eval()
head = model.head
params = [p for n, p in model.named_parameters() if n.startswith("head")]


def loss_of(hidden, labels):
    return F.cross_entropy(head(hidden).float(), labels, reduction="sum")


def product(hidden, labels, vectors):
    """Returns the product of the loss's second derivatives with vectors."""
    total = [torch.zeros_like(p) for p in params]
    parts = CHUNKS if FIXED else 1
    for h, y in zip(hidden.chunk(parts), labels.chunk(parts)):
        loss = loss_of(h, y) / labels.numel()
        grads = torch.autograd.grad(loss, params, create_graph=True)
        dot = sum((g * v).sum() for g, v in zip(grads, vectors))
        for t, g in zip(total, torch.autograd.grad(dot, params)):
            t.add_(g)
    return total


vectors = [torch.randn_like(p) for p in params]
for iteration in range(4):
    tokens = torch.randint(50257, (4, 1025)).cuda()
    with torch.no_grad():
        hidden = model.features(tokens[:, :-1].clone()).flatten(0, 1)
    result = product(hidden, tokens[:, 1:].flatten(), vectors)
    norm = torch.stack([r.norm() for r in result]).norm()
    vectors = [r / norm for r in result]
    print(iteration)
