"""Trains a generative recommender and evaluates it in between, with larger batches."""

import sys
from contextlib import nullcontext

import torch
import torch.nn.functional as F
from nets import Block
from torch import nn

FIXED = "--fixed" in sys.argv
ITEMS = 30_000


class Recommender(nn.Module):
    """Blocks over the items that a user saw, and a score for each candidate that was shown."""

    def __init__(self, width=256, layers=6):
        super().__init__()
        self.items = nn.Embedding(ITEMS, width)
        self.blocks = nn.Sequential(*(Block(width, 4) for _ in range(layers)))
        self.tower = nn.Sequential(nn.Linear(2 * width, 512), nn.SiLU(), nn.Linear(512, 1))

    def forward(self, seen, candidates, labels):
        user = self.blocks(self.items(seen))[:, -1:].expand(-1, candidates.shape[1], -1)
        logits = self.tower(torch.cat([user, self.items(candidates)], dim=-1)).squeeze(-1)
        return F.binary_cross_entropy_with_logits(logits, labels), logits.sigmoid(), labels


class MetricsLogger:
    """Sums of what each batch says, as a running normalised entropy needs them."""

    def __init__(self):
        self.error, self.count = torch.zeros((), device="cuda"), 0

    def update(self, predictions, labels):
        self.error += (predictions.detach() - labels).abs().sum()
        self.count += labels.numel()


def samples(number, batch, length=128):
    for _ in range(number):
        candidates = torch.randint(ITEMS, (batch, 16))
        yield torch.randint(ITEMS, (batch, length)).cuda(), candidates.cuda(), torch.rand(batch, 16).cuda()


def eval_loop(model, metrics):
    model.eval()
    with torch.no_grad() if FIXED else nullcontext():
        for sample in samples(4, 256):
            loss, predictions, labels = model(*sample)
            metrics.update(predictions, labels)
    return loss.item()


def train_eval_loop(model, optimizer, epochs=2):
    for epoch in range(epochs):
        model.train()
        for sample in samples(5, 64):
            loss, _, _ = model(*sample)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(epoch, eval_loop(model, MetricsLogger()))


recommender = Recommender().cuda()
train_eval_loop(recommender, torch.optim.Adam(recommender.parameters(), lr=1e-3))
