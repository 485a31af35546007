"""Fine-tunes VGG-16; with SGD the same batch fits."""

import sys

import torch
import torch.nn.functional as F
from torch import nn

FIXED = "--fixed" in sys.argv


class VGG16(nn.Module):
    def __init__(self, classes=20):
        super().__init__()
        layers, channels = [], 3
        for to, times in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
            for _ in range(times):
                layers += [nn.Conv2d(channels, to, 3, padding=1), nn.ReLU(inplace=True)]
                channels = to
            layers.append(nn.MaxPool2d(2))
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Sequential(
            *(nn.Linear(512 * 49, 4096), nn.ReLU(inplace=True), nn.Dropout()),
            *(nn.Linear(4096, 4096), nn.ReLU(inplace=True), nn.Dropout()),
            nn.Linear(4096, classes),
        )

    def forward(self, x):
        return self.classifier(self.features(x).flatten(1))


with torch.device("cuda"):
    model = VGG16()
parameters = [p for p in model.parameters() if p.requires_grad]
if FIXED:
    optimizer = torch.optim.SGD(parameters, lr=1e-3)
else:
    optimizer = torch.optim.Adam(parameters, lr=1e-3, foreach=False)
for step in range(4):
    images, labels = torch.rand(8, 3, 224, 224).cuda(), torch.randint(20, (8,)).cuda()
    optimizer.zero_grad()
    loss = F.cross_entropy(model(images), labels)
    loss.backward()
    optimizer.step()
