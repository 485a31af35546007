"""Trains bags of words with a large vocabulary."""

import sys

import torch
import torch.nn.functional as F
from torch import nn

FIXED = "--fixed" in sys.argv
VOCABULARY, WIDTH = 6_000_000, 256


class Bags(nn.Module):
    def __init__(self, classes=50):
        super().__init__()
        self.words = nn.Embedding(VOCABULARY, WIDTH, sparse=FIXED)
        self.out = nn.Linear(WIDTH, classes)

    def forward(self, words):
        return self.out(self.words(words).sum(dim=1))


with torch.device("cuda"):
    model = Bags()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(5):
    words, labels = torch.randint(VOCABULARY, (40, 50)).cuda(), torch.randint(50, (40,)).cuda()
    loss = F.cross_entropy(model(words), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())
