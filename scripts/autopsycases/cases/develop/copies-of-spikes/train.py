"""Sorts spikes: chooses the centres of clusters one after the other, each the worst fit so far."""

import sys

import torch

FIXED = "--fixed" in sys.argv
SPIKES, FEATURES, CLUSTERS = 2_400_000, 512, 12


def kmeans_plusplus(xg, clusters):
    n = len(xg)
    if FIXED:
        vtot = torch.linalg.vector_norm(xg, dim=1) ** 2
    else:
        vtot = (xg**2).sum(1)
    vexp0 = torch.zeros(n, device=xg.device)
    mu = torch.zeros(clusters, xg.shape[1], device=xg.device)
    chosen = torch.zeros(n, dtype=torch.int, device=xg.device)
    for j in range(clusters):
        rest = (vtot - vexp0).clamp(min=0)
        mu[j] = xg[rest.argmax()]
        vexp = 2 * xg @ mu[j] - (mu[j] ** 2).sum() if not FIXED else 2 * (xg @ mu[j]) - (mu[j] ** 2).sum()
        better = vexp > vexp0
        vexp0 = torch.where(better, vexp, vexp0)
        chosen = torch.where(better, j, chosen)
        print("cluster", j)
    return chosen


features = torch.randn(SPIKES, FEATURES, device="cuda")
labels = kmeans_plusplus(features, CLUSTERS)
print(labels.shape)
