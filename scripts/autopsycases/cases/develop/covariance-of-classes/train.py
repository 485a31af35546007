"""Trains a classifier with semantic augmentation, which estimates a covariance for each class."""

import sys

import torch
import torch.nn.functional as F
from nets import ResNet

FIXED = "--fixed" in sys.argv
CLASSES, BATCH = 1000, 16


class Covariances:
    """The covariance of the features of each class; with --fixed only its diagonal."""

    def __init__(self, features, classes):
        shape = (classes, features) if FIXED else (classes, features, features)
        self.covariance = torch.zeros(shape).cuda()
        self.mean = torch.zeros(classes, features).cuda()

    def update(self, features, labels):
        features = features.detach()
        self.mean[labels] = 0.9 * self.mean[labels] + 0.1 * features
        difference = features - self.mean[labels]
        if FIXED:
            self.covariance[labels] = 0.9 * self.covariance[labels] + 0.1 * difference**2
        else:
            outer = difference[:, :, None] * difference[:, None, :]
            self.covariance[labels] = 0.9 * self.covariance[labels] + 0.1 * outer


model = ResNet().cuda()
covariances = Covariances(model.channels, CLASSES)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
for step in range(4):
    images, labels = torch.rand(BATCH, 3, 224, 224).cuda(), torch.randint(CLASSES, (BATCH,)).cuda()
    features = model.features(images)
    covariances.update(features, labels)
    loss = F.cross_entropy(model.classifier(features), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())
