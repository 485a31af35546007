"""Trains an image retrieval network on tuples of a query, a match and five others, of all sizes."""

import random
import sys

import torch
import torch.nn.functional as F
from nets import ResNet

FIXED = "--fixed" in sys.argv

draw = random.Random(5)
model = ResNet().cuda()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-6)


def images():
    """A tuple's images, each of its own size."""
    for _ in range(7):
        yield torch.rand(1, 3, draw.randrange(240, 363), 362).cuda()


def contrastive_loss(vectors, margin=0.85):
    far = (vectors[:, :1] - vectors[:, 1:] + 1e-6).pow(2).sum(0).sqrt()
    same = torch.tensor([1.0] + 5 * [0.0], device="cuda")
    return (same * far**2 + (1 - same) * F.relu(margin - far) ** 2).sum() / 2


for step in range(3):
    total = 0.0
    for _ in range(5):
        vectors = torch.zeros(model.channels, 7, device="cuda")
        for i, image in enumerate(images()):
            vectors[:, i] = F.normalize(model.features(image)).squeeze()
        loss = contrastive_loss(vectors)
        if FIXED:
            loss.backward()
        else:
            total = total + loss
    if not FIXED:
        total.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(step, loss.item())
