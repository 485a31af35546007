"""Trains embeddings with a contrastive loss over all pairs that the labels allow."""

import sys

import torch
from nets import ResNet
from torch import nn

FIXED = "--fixed" in sys.argv
HALF = 160


class PairLoss(nn.Module):
    """Normalised temperature-scaled cross entropy over pairs."""

    def __init__(self, temperature=0.5):
        super().__init__()
        self.temperature = temperature

    def forward(self, embeddings, labels):
        similarities = embeddings @ embeddings.T / self.temperature
        a1, p, a2, n = self.pairs(labels)
        positive, negative = similarities[a1, p], similarities[a2, n]
        return self.compare(positive, negative, a1, a2)

    def pairs(self, labels):
        same = labels.unsqueeze(0) == labels.unsqueeze(1)
        positive = (same & ~torch.eye(len(labels), dtype=torch.bool)).nonzero()
        negative = (~same).nonzero()
        return (x.cuda() for x in (*positive.T, *negative.T))

    def compare(self, positive, negative, a1, a2):
        positive = positive.unsqueeze(1)
        comparable = (a2.unsqueeze(0) == a1.unsqueeze(1)).float()
        negative = negative * comparable
        largest = torch.max(positive, negative.max(dim=1, keepdim=True)[0]).detach()
        numerator = torch.exp(positive - largest).squeeze(1)
        denominator = torch.exp(negative - largest).sum(dim=1) + numerator
        return -torch.log(numerator / denominator + 1e-20).mean()


model = ResNet(classes=128).cuda()
criterion = PairLoss()
optimizer = torch.optim.Adam(model.parameters())
for step in range(3):
    labels = torch.cat([torch.zeros(HALF), torch.arange(1, HALF + 1)]).long()
    if FIXED:
        labels = torch.arange(HALF).repeat(2)
    loss = criterion(model(torch.rand(2 * HALF, 3, 112, 112).cuda()), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(loss.item())
