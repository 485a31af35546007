"""Trains a retriever of pages by late interaction: every question against every page of the batch."""

import sys

import torch
import torch.nn.functional as F
from nets import Encoder
from torch import nn

FIXED = "--fixed" in sys.argv
BATCH, PART = 128, 8


class Retriever(nn.Module):
    """A vector of 128 numbers for each token."""

    def __init__(self):
        super().__init__()
        self.model = Encoder(layers=8, width=512, heads=8, context=512)
        self.projection = nn.Linear(512, 128)

    def forward(self, tokens):
        return F.normalize(self.projection(self.model.features(tokens)), dim=-1)


class ColbertLoss(nn.Module):
    def forward(self, questions, pages, temperature=0.02):
        scores = torch.stack([(page @ questions.transpose(1, 2)).amax(dim=1).sum(dim=1) for page in pages])
        return F.cross_entropy(scores.t() / temperature, torch.arange(len(pages), device=pages.device))


def cached_step(model, loss_of, questions, pages):
    """Embeds parts without a graph, then again with one, to hand the loss's gradients on."""
    with torch.no_grad():
        embedded = [torch.cat([model(x) for x in side.split(PART)]) for side in (questions, pages)]
    embedded = [x.requires_grad_(True) for x in embedded]
    loss = loss_of(*embedded)
    loss.backward()
    for side, whole in zip((questions, pages), embedded):
        for x, gradient in zip(side.split(PART), whole.grad.split(PART)):
            model(x).backward(gradient)
    return loss


model, loss_of = Retriever().cuda(), ColbertLoss()
optimizer = torch.optim.AdamW(model.parameters(), lr=5e-5)
for step in range(3):
    questions = torch.randint(30522, (BATCH, 32)).cuda()
    pages = torch.randint(30522, (BATCH, 256)).cuda()
    optimizer.zero_grad()
    if FIXED:
        loss = cached_step(model, loss_of, questions, pages)
    else:
        loss = loss_of(model(questions), model(pages))
        loss.backward()
    optimizer.step()
    print(step, loss.item())
