"""Trains on slides: all patches of one are a batch, and its label is that of the whole slide."""

import sys

import torch
import torch.nn.functional as F
from nets import ResNet
from torch import nn

FIXED = "--fixed" in sys.argv
MAX_BAG_SIZE = 100 if FIXED else None


class SlideClassifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = ResNet()
        self.head = nn.Linear(self.encoder.channels, 1)

    def forward(self, patches):
        scores = self.head(self.encoder.features(patches))[:, 0]
        return scores.topk(max(1, len(scores) // 10)).values.mean()


model = SlideClassifier().cuda()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
for patches in [64, 90, 41, 77, 120, 55, 310, 60]:
    bag = torch.rand(patches, 3, 224, 224)
    if MAX_BAG_SIZE and len(bag) > MAX_BAG_SIZE:
        bag = bag[torch.randperm(len(bag))[:MAX_BAG_SIZE]]
    loss = F.binary_cross_entropy_with_logits(model(bag.cuda()), torch.ones((), device="cuda"))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(patches, loss.item())
