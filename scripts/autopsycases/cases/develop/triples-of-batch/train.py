"""Trains embeddings of sentences with triplets that are mined from the batch."""

import sys

import torch
from nets import Encoder

FIXED = "--fixed" in sys.argv


def pairwise_distances(embeddings):
    dot = embeddings @ embeddings.t()
    square = dot.diagonal()
    return (square.unsqueeze(0) - 2 * dot + square.unsqueeze(1)).clamp(min=0)


def semi_hard_triplet_loss(labels, embeddings, margin=5.0):
    labels = labels.unsqueeze(1)
    distances = pairwise_distances(embeddings)
    same = labels == labels.t()
    negative = ~same
    size = len(labels)
    farthest = torch.where(negative, distances, 0.0).amax(1, keepdim=True).expand(-1, size)
    if FIXED:
        inside = []
        for row, wrong in zip(distances, negative):
            further = wrong & (row > row.unsqueeze(1))
            inside.append(torch.where(further, row, row.max()).amin(1))
        nearest = torch.stack(inside)
    else:
        tiled = distances.repeat([size, 1])
        mask = negative.repeat([size, 1]) & (tiled > distances.t().reshape(-1, 1))
        largest = tiled.amax(1, keepdim=True)
        nearest = ((tiled - largest) * mask).amin(1, keepdim=True) + largest
        nearest = nearest.reshape(size, size).t()
    loss = margin + distances - torch.where(nearest < farthest, nearest, farthest)
    positive = same.float() - torch.eye(size, device=labels.device)
    return (loss * positive).clamp(min=0).sum() / positive.sum()


model = Encoder(layers=6, width=384, heads=6, context=64).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5)
for step in range(4):
    tokens = torch.randint(30522, (640, 24)).cuda()
    labels = torch.randint(8, (640,)).cuda()
    loss = semi_hard_triplet_loss(labels, model.features(tokens).mean(1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step)
