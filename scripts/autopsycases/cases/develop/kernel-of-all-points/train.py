"""Fits an exact Gaussian process with a composite kernel to measurements of variants."""

import sys

import torch
from torch import nn

FIXED = "--fixed" in sys.argv
POINTS = 8000 if FIXED else 30000


class RBF(nn.Module):
    def __init__(self, dimensions):
        super().__init__()
        self.lengthscale = nn.Parameter(torch.ones(dimensions))

    def forward(self, x):
        x = x / self.lengthscale
        squared = x.square().sum(dim=-1)
        return torch.exp(-0.5 * (squared[:, None] + squared[None, :] - 2 * x @ x.T).clamp_min(0))


class Composite(nn.Module):
    def __init__(self):
        super().__init__()
        self.sequence, self.structure = RBF(128), RBF(20)
        self.weight, self.noise = nn.Parameter(torch.zeros(1)), nn.Parameter(torch.zeros(1))

    def forward(self, embeddings, sites):
        share = self.weight.sigmoid()
        return share * self.sequence(embeddings) + (1 - share) * self.structure(sites)


@torch.no_grad()
def solve(kernel, noise, y, iterations=10):
    x, r = torch.zeros_like(y), y.clone()
    p, rr = r, r @ r
    for _ in range(iterations):
        k = kernel @ p + noise * p
        a = rr / (p @ k)
        x, r = x + a * p, r - a * k
        before, rr = rr, r @ r
        p = r + rr / before * p
    return x


embeddings, sites = torch.rand(POINTS, 128).cuda(), torch.rand(POINTS, 20).cuda()
y = torch.rand(POINTS).cuda()
model = Composite().cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
for iteration in range(3):
    kernel = model(embeddings, sites)
    noise = model.noise.exp()
    alpha = solve(kernel, noise, y)
    loss = y @ alpha - 0.5 * (alpha @ (kernel @ alpha) + noise * alpha @ alpha)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(iteration, loss.item())
