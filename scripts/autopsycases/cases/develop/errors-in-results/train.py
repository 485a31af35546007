"""Searches for settings of a classifier. A trial that diverges raises, and its error is kept."""

import sys

import torch
import torch.nn.functional as F
from nets import ResNet

FIXED = "--fixed" in sys.argv


class Diverged(Exception):
    pass


class Trial:
    def __init__(self, lr):
        self.lr = lr

    def fit(self, steps):
        net = ResNet(classes=100).cuda()
        optimizer = torch.optim.SGD(net.parameters(), lr=self.lr, momentum=0.9)
        for step in range(steps):
            images, labels = torch.rand(32, 3, 128, 128).cuda(), torch.randint(100, (32,)).cuda()
            logits = net(images)
            loss = F.cross_entropy(logits, labels)
            if self.lr > 0.05 and step == 3:
                raise Diverged(f"the loss is {loss.item()} with lr {self.lr}")
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        return loss.item()


def search(rates):
    results = []
    for lr in rates:
        try:
            results.append((lr, Trial(lr).fit(6)))
        except Diverged as err:
            results.append((lr, str(err) if FIXED else err))
    return results


for lr, result in search([0.01, 0.1, 0.02, 0.2, 0.03, 0.3, 0.04, 0.4, 0.05, 0.5, 0.01, 0.6]):
    print(lr, result)
