"""Trains DenseNet-121, whose layers each see the features of all layers before."""

import sys

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

FIXED = "--fixed" in sys.argv


class DenseLayer(nn.Module):
    def __init__(self, channels, growth=32):
        super().__init__()
        self.norm1 = nn.BatchNorm2d(channels)
        self.conv1 = nn.Conv2d(channels, 4 * growth, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(4 * growth)
        self.conv2 = nn.Conv2d(4 * growth, growth, 3, padding=1, bias=False)

    def bottleneck(self, *features):
        return self.conv1(F.relu(self.norm1(torch.cat(features, 1))))

    def forward(self, features):
        if FIXED:
            x = checkpoint(self.bottleneck, *features, use_reentrant=False)
        else:
            x = self.bottleneck(*features)
        return self.conv2(F.relu(self.norm2(x)))


class DenseBlock(nn.Module):
    def __init__(self, layers, channels, growth=32):
        super().__init__()
        self.layers = nn.ModuleList(DenseLayer(channels + i * growth, growth) for i in range(layers))

    def forward(self, x):
        features = [x]
        for layer in self.layers:
            features.append(layer(features))
        return torch.cat(features, 1)


class DenseNet(nn.Module):
    def __init__(self, depths=(6, 12, 24, 16), growth=32, classes=1000):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU())
        channels, body = 64, []
        for i, depth in enumerate(depths):
            body.append(DenseBlock(depth, channels, growth))
            channels += depth * growth
            if i < len(depths) - 1:
                body += [nn.BatchNorm2d(channels), nn.ReLU()]
                body += [nn.Conv2d(channels, channels // 2, 1), nn.AvgPool2d(2)]
                channels //= 2
        self.body = nn.Sequential(*body)
        self.classifier = nn.Linear(channels, classes)

    def forward(self, images):
        x = self.body(F.max_pool2d(self.stem(images), 3, 2, 1))
        return self.classifier(F.relu(x).mean(dim=(2, 3)))


net = DenseNet().cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
for step in range(3):
    images, labels = torch.rand(64, 3, 224, 224).cuda(), torch.randint(1000, (64,)).cuda()
    loss = F.cross_entropy(net(images), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step)
