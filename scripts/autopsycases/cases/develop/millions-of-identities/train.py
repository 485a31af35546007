"""Trains face recognition with a margin loss over two million identities."""

import sys

import torch
import torch.nn.functional as F
from nets import ResNet
from torch import nn

FIXED = "--fixed" in sys.argv
IDENTITIES = 2_059_906
SAMPLED = IDENTITIES // 10 if FIXED else IDENTITIES  # the share of a class centre's that a step works on


def l2_norm(x, axis):
    return x / x.norm(2, axis, True)


class AdaFace(nn.Module):
    def __init__(self, width=512, m=0.4, s=64.0):
        super().__init__()
        self.kernel = nn.Parameter(torch.empty(width, SAMPLED).uniform_(-1, 1))
        self.m, self.s = m, s

    def forward(self, embeddings, labels):
        cosine = torch.mm(l2_norm(embeddings, 1), l2_norm(self.kernel, 0)).clamp(-1 + 1e-3, 1 - 1e-3)
        margin = torch.zeros_like(cosine).scatter_(1, labels[:, None] % SAMPLED, self.m)
        return (cosine.acos() + margin).clamp(1e-3, 3.14).cos() * self.s


backbone = ResNet(classes=512).cuda()
with torch.device("cuda"):
    head = AdaFace()
optimizer = torch.optim.SGD([*backbone.parameters(), *head.parameters()], lr=0.1, momentum=0.9)
for step in range(3):
    images, labels = torch.rand(64, 3, 112, 112).cuda(), torch.randint(IDENTITIES, (64,)).cuda()
    loss = F.cross_entropy(head(backbone(images), labels), labels % SAMPLED)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
