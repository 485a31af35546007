"""Evaluates a model that scores each picture with all pairs of attributes and objects, seen or not."""

import sys

import torch
from nets import ResNet
from torch import nn

FIXED = "--fixed" in sys.argv
ATTRIBUTES, OBJECTS, WIDTH, BATCH = 115, 245, 512, 64


class Compatibility(nn.Module):
    def __init__(self):
        super().__init__()
        self.images = ResNet()
        self.project = nn.Linear(self.images.channels, WIDTH)
        self.attributes, self.objects = nn.Embedding(ATTRIBUTES, WIDTH), nn.Embedding(OBJECTS, WIDTH)
        self.compose = nn.Linear(2 * WIDTH, WIDTH)

    def pairs(self):
        a = self.attributes.weight[:, None].expand(-1, OBJECTS, -1)
        o = self.objects.weight[None].expand(ATTRIBUTES, -1, -1)
        return self.compose(torch.cat([a, o], dim=-1)).flatten(0, 1)

    def forward(self, images):
        return self.project(self.images.features(images)) @ self.pairs().t()


def score(scores, truth, seen, bias=1e3):
    """Adds the bias to pairs that were not seen in training, and ranks all pairs of each picture."""
    scores = torch.where(seen, scores, scores + bias)
    best = scores.topk(5, dim=1).indices
    return (best == truth[:, None]).any(dim=1).float().mean()


def evaluate(model, batches=240):
    predictions, truth = [], []
    seen = torch.rand(ATTRIBUTES * OBJECTS, device="cuda") < 0.05
    with torch.no_grad():
        for _ in range(batches):
            scores = model(torch.rand(BATCH, 3, 64, 64).cuda())
            predictions.append(scores.cpu() if FIXED else scores)
            truth.append(torch.randint(ATTRIBUTES * OBJECTS, (BATCH,), device=predictions[-1].device))
        scores, truth = torch.cat(predictions), torch.cat(truth)
        return score(scores, truth, seen.to(scores.device))


model = Compatibility().cuda()
optimizer = torch.optim.Adam(model.parameters(), lr=5e-5)
for epoch in range(2):
    model.train()
    for _ in range(4):
        labels = torch.randint(ATTRIBUTES * OBJECTS, (BATCH,)).cuda()
        loss = nn.functional.cross_entropy(model(torch.rand(BATCH, 3, 64, 64).cuda()), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.eval()
    print(epoch, evaluate(model).item())
