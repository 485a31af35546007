"""Trains an autoencoder and scores what it reconstructs by the features of another network."""

import sys

import torch
import torch.nn.functional as F
from nets import ResNet, UNet
from torch import nn

FIXED = "--fixed" in sys.argv


class FrechetDistance(nn.Module):
    """Collects features of real and of generated images for a distance between their distributions."""

    def __init__(self):
        super().__init__()
        self.inception = ResNet().eval()
        self.real_features, self.fake_features = [], []

    @torch.no_grad()
    def update(self, images, real):
        x = self.inception.stages(F.max_pool2d(self.inception.stem(images), 3, 2, 1))
        features = x.flatten(1)
        if FIXED:
            features = features.cpu()
        (self.real_features if real else self.fake_features).append(features)

    def compute(self):
        real, fake = torch.cat(self.real_features), torch.cat(self.fake_features)
        return (real.mean(dim=0) - fake.mean(dim=0)).pow(2).sum()


model = UNet(classes=3, width=16).cuda()
metric = FrechetDistance().cuda()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
for epoch in range(2):
    model.train()
    for step in range(4):
        images = torch.rand(16, 3, 256, 256).cuda()
        loss = F.mse_loss(model(images), images)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.eval()
    for step in range(40):
        images = torch.rand(64, 3, 256, 256).cuda()
        with torch.no_grad():
            fake = model(images)
        metric.update(images, real=True)
        metric.update(fake, real=False)
    print(epoch, metric.compute().item())
