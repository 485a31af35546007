"""Trains a late-interaction retriever on documents that are gathered from all ranks."""

import sys

import torch
import torch.nn.functional as F
from nets import Encoder
from torch import nn

FIXED = "--fixed" in sys.argv
RANKS, BATCH, QUERY, DOCUMENT = 8, 32, 32, 256


class ColBERT(nn.Module):
    def __init__(self, width=768):
        super().__init__()
        self.encoder = Encoder(width=width, layers=6, context=256)
        self.project = nn.Linear(width, 128, bias=False)

    def forward(self, tokens):
        return F.normalize(self.project(self.encoder.features(tokens)), dim=-1)


def gather(x):
    """What all_gather returns: the others' tensors have no gradients."""
    others = [F.normalize(torch.randn_like(x), dim=-1) for _ in range(RANKS - 1)]
    return torch.cat([x, *others])


def colbert_scores(queries, documents):
    scores = torch.einsum("ash,bth->abst", queries, documents)
    return scores.max(dim=-1).values.sum(dim=-1)


def contrastive(queries, documents):
    documents = gather(documents)
    if not FIXED:
        queries = gather(queries)
    labels = torch.arange(len(queries), device=queries.device)
    return F.cross_entropy(colbert_scores(queries, documents) / 0.02, labels)


model = ColBERT().cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-6)
for step in range(4):
    queries = model(torch.randint(30522, (BATCH, QUERY)).cuda())
    documents = model(torch.randint(30522, (BATCH, DOCUMENT)).cuda())
    loss = contrastive(queries, documents)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())
