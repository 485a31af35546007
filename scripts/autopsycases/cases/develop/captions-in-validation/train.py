"""Trains a network that writes captions; its validation also keeps scores for the metric."""

import sys
from contextlib import nullcontext

import torch
import torch.nn.functional as F
from nets import ResNet
from torch import nn

FIXED = "--fixed" in sys.argv
WORDS, LENGTH = 9490, 24


class Decoder(nn.Module):
    def __init__(self, features=2048, width=512):
        super().__init__()
        self.width = width
        self.embedding = nn.Embedding(WORDS, width)
        self.cell = nn.LSTMCell(width + features, width)
        self.out = nn.Linear(width, WORDS)

    def forward(self, features, captions):
        h = torch.zeros(len(features), self.width, device=features.device)
        c = torch.zeros_like(h)
        words, scores = self.embedding(captions), []
        for t in range(captions.shape[1]):
            h, c = self.cell(torch.cat([words[:, t], features], dim=1), (h, c))
            scores.append(self.out(F.dropout(h, 0.5, self.training)))
        return torch.stack(scores, dim=1)


encoder, decoder = ResNet().cuda(), Decoder().cuda()
optimizer = torch.optim.Adam([*encoder.parameters(), *decoder.parameters()], lr=4e-4)


def batches(n):
    for _ in range(n):
        yield torch.rand(48, 3, 224, 224).cuda(), torch.randint(WORDS, (48, LENGTH)).cuda()


def train():
    encoder.train()
    decoder.train()
    for images, captions in batches(4):
        scores = decoder(encoder.features(images), captions)
        loss = F.cross_entropy(scores.flatten(0, 1), captions.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def validate():
    encoder.eval()
    decoder.eval()
    losses = []
    with torch.no_grad() if FIXED else nullcontext():
        for images, captions in batches(6):
            scores = decoder(encoder.features(images), captions)
            scores_copy = scores.clone()
            loss = F.cross_entropy(scores.flatten(0, 1), captions.flatten())
            losses.append(loss.item())
            scores_copy.max(dim=2)
    return sum(losses) / len(losses)


for epoch in range(2):
    train()
    print(epoch, validate())
