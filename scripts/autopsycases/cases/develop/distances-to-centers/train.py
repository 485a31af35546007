"""Clusters the features of images with k-means."""

import sys

import torch

FIXED = "--fixed" in sys.argv
POINTS, FEATURES, CLUSTERS = 60_000, 512, 200


def pairwise_distance(data1, data2):
    a, b = data1.unsqueeze(dim=1), data2.unsqueeze(dim=0)
    if not FIXED:
        return ((a - b) ** 2.0).sum(dim=-1).squeeze()
    return torch.cat([((part - b) ** 2.0).sum(dim=-1) for part in a.split(2_000)])


def kmeans(points, clusters, rounds=5):
    centers = points[torch.randperm(len(points))[:clusters].cuda()]
    for i in range(rounds):
        choice = pairwise_distance(points, centers).argmin(dim=1)
        sums = torch.zeros_like(centers).index_add_(0, choice, points)
        counts = torch.zeros(clusters, device="cuda").index_add_(0, choice, torch.ones_like(points[:, 0]))
        moved = sums / counts.clamp(min=1)[:, None]
        print(i, (moved - centers).norm().item())
        centers = moved
    return choice


features = torch.randn(POINTS, FEATURES)
kmeans(features.cuda(), CLUSTERS)
