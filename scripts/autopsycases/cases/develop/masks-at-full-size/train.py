"""Trains masks for a fixed number of queries; validation scores them at the size of the images."""

import sys

import torch
import torch.nn.functional as F
from nets import Block
from torch import nn

FIXED = "--fixed" in sys.argv
QUERIES = 200


class Masks(nn.Module):
    """A vision transformer with queries: classes and masks at a quarter of the size."""

    def __init__(self, width=384, layers=12, classes=81):
        super().__init__()
        self.patches = nn.Conv2d(3, width, 16, 16)
        self.queries = nn.Parameter(torch.zeros(1, QUERIES, width))
        self.blocks = nn.ModuleList(Block(width, 6, causal=False) for _ in range(layers))
        self.classes = nn.Linear(width, classes)
        self.larger = nn.ConvTranspose2d(width, width, 4, 4)

    def forward(self, images):
        x = self.patches(images)
        high, wide = x.shape[-2:]
        x = torch.cat([self.queries.expand(len(x), -1, -1), x.flatten(2).transpose(1, 2)], dim=1)
        for block in self.blocks:
            x = block(x)
        queries, x = x[:, :QUERIES], x[:, QUERIES:]
        x = self.larger(x.transpose(1, 2).unflatten(2, (high, wide)))
        return self.classes(queries), torch.einsum("bqc,bchw->bqhw", queries, x)


model = Masks().cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)


def scored(logits, size):
    masks = F.interpolate(logits, size, mode="bilinear")
    scores = (masks.sigmoid() * (masks > 0)).sum(dim=(2, 3)) / ((masks > 0).sum(dim=(2, 3)) + 1e-6)
    return masks > 0, scores


@torch.no_grad()
def validate(images, size):
    classes, logits = model(images)
    if FIXED:
        parts = [scored(part, size) for part in logits.split(10, dim=1)]
        return [(masks.cpu(), scores.cpu()) for masks, scores in parts]
    return scored(logits, size)


for epoch in range(2):
    for _ in range(3):
        images = torch.rand(4, 3, 512, 512).cuda()
        classes, masks = model(images)
        wanted = torch.rand_like(masks).round()
        loss = F.binary_cross_entropy_with_logits(masks, wanted)
        loss = loss + F.cross_entropy(classes.flatten(0, 1), torch.randint(81, (4 * QUERIES,)).cuda())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    validate(torch.rand(1, 3, 512, 512).cuda(), (2160, 3840))
