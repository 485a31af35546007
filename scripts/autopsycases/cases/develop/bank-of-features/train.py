"""Fits a detector of unknown inputs on the features of a whole training set."""

import sys

import torch
import torch.nn.functional as F
from torch import nn

FIXED = "--fixed" in sys.argv


class NNGuide:
    """Keeps normalized features of known samples, scaled by the energy of their logits."""

    def __init__(self, head, fraction=0.01):
        self.head, self.fraction, self.bank = head, fraction, None

    def fit_features(self, features):
        chosen = torch.randperm(len(features))[: int(self.fraction * len(features))]
        if FIXED:
            for part in features.split(4096):
                torch.logsumexp(self.head(part.cuda()), dim=1).cpu()
            x = features[chosen].cuda()
            self.bank = F.normalize(x) * torch.logsumexp(self.head(x), dim=1, keepdim=True)
            return
        x = features.cuda()
        logits = self.head(x)
        energies = torch.logsumexp(logits, dim=1, keepdim=True)
        scaled = F.normalize(x) * energies
        self.bank = scaled[chosen.cuda()]


head = nn.Linear(512, 1000).cuda().requires_grad_(False)
features = torch.empty(400_000, 512)
detector = NNGuide(head)
with torch.no_grad():
    detector.fit_features(features)
print(detector.bank.shape)
