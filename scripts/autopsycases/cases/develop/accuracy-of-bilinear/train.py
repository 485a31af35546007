"""Trains all layers of a bilinear network for birds, and tests it after each epoch."""

import sys

import torch
import torch.nn.functional as F
from torch import nn

FIXED = "--fixed" in sys.argv


class BCNN(nn.Module):
    def __init__(self, classes=200):
        super().__init__()
        layers, channels = [], 3
        for width, depth in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
            for _ in range(depth):
                layers += [nn.Conv2d(channels, width, 3, padding=1), nn.ReLU(inplace=True)]
                channels = width
            layers.append(nn.MaxPool2d(2))
        self.features = nn.Sequential(*layers[:-1])
        self.fc = nn.Linear(512**2, classes)

    def forward(self, x):
        x = self.features(x).flatten(2)
        x = torch.bmm(x, x.transpose(1, 2)) / x.shape[2]
        return self.fc(F.normalize(torch.sqrt(x.flatten(1) + 1e-5)))


class Manager:
    def __init__(self):
        self.net = BCNN().cuda()
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=1e-2, momentum=0.9, weight_decay=1e-5)

    def batches(self, n, size):
        for _ in range(n):
            yield torch.rand(size, 3, 224, 224), torch.randint(200, (size,))

    def train(self, epochs):
        for epoch in range(epochs):
            losses = []
            for x, y in self.batches(6, 8):
                score = self.net(x.cuda())
                loss = F.cross_entropy(score, y.cuda())
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
                losses.append(loss.item())
            print(epoch, sum(losses) / len(losses), self.accuracy(self.batches(6, 32)))

    def accuracy(self, loader):
        self.net.train(False)
        correct = total = 0
        for x, y in loader:
            with torch.set_grad_enabled(not FIXED):
                score = self.net(x.cuda())
            total += len(y)
            correct += (score.argmax(dim=1) == y.cuda()).sum().item()
        self.net.train(True)
        return 100 * correct / total


Manager().train(2)
