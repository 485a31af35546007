"""Fits PointNet with a wrapper as of scikit-learn, whose scores see the predictions of a whole validation."""

import sys

import torch
import torch.nn.functional as F
from torch import nn

FIXED = "--fixed" in sys.argv


def layers(*sizes):
    parts = []
    for a, b in zip(sizes, sizes[1:]):
        parts += [nn.Conv1d(a, b, 1), nn.BatchNorm1d(b), nn.ReLU()]
    return nn.Sequential(*parts)


class PointNet(nn.Module):
    def __init__(self, classes=40):
        super().__init__()
        self.first, self.second = layers(3, 64, 64), layers(64, 64, 128, 1024)
        self.head = nn.Sequential(nn.Linear(1024, 512), nn.ReLU(), nn.Dropout(0.3), nn.Linear(512, classes))

    def forward(self, points):
        return self.head(self.second(self.first(points)).amax(dim=2))


class NeuralNet:
    def __init__(self, module):
        self.module_ = module.cuda()
        self.optimizer_ = torch.optim.Adam(self.module_.parameters())

    def get_loss(self, y_pred, y):
        return F.cross_entropy(y_pred, y)

    def train_step(self, points, y):
        self.module_.train()
        self.optimizer_.zero_grad()
        y_pred = self.module_(points)
        loss = self.get_loss(y_pred, y)
        loss.backward()
        self.optimizer_.step()
        return {"loss": loss, "y_pred": y_pred}

    def validation_step(self, points, y):
        self.module_.eval()
        with torch.set_grad_enabled(not FIXED):
            y_pred = self.module_(points)
            loss = self.get_loss(y_pred, y)
        return {"loss": loss, "y_pred": y_pred}

    def fit(self, train, valid, epochs=2):
        for epoch in range(epochs):
            for points, y in train():
                step = self.train_step(points.cuda(), y.cuda())
            y_preds, targets = [], []
            for points, y in valid():
                step = self.validation_step(points.cuda(), y.cuda())
                y_preds.append(step["y_pred"])
                targets.append(y)
            right = torch.cat(y_preds).argmax(dim=1).cpu() == torch.cat(targets)
            print(epoch, step["loss"].item(), right.float().mean().item())


def batches(count, size=32, points=1024):
    def load():
        for _ in range(count):
            yield torch.rand(size, 3, points), torch.randint(40, (size,))

    return load


NeuralNet(PointNet()).fit(batches(12), batches(20))
