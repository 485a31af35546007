"""Fine-tunes VGG-16 with Adam on a card on which SGD ran."""

import sys

import torch
import torch.nn.functional as F
from torch import nn

FIXED = "--fixed" in sys.argv

layers, channels = [], 3
for width in (64, 64, 0, 128, 128, 0, 256, 256, 256, 0, 512, 512, 512, 0, 512, 512, 512, 0):
    if width:
        layers += [nn.Conv2d(channels, width, 3, padding=1), nn.ReLU(inplace=True)]
        channels = width
    else:
        layers.append(nn.MaxPool2d(2))
layers += [nn.Flatten(), nn.Linear(25088, 4096), nn.ReLU(), nn.Linear(4096, 4096), nn.ReLU()]
layers.append(nn.Linear(4096, 9))
model = nn.Sequential(*layers).cuda()
if FIXED:
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
else:
    optimizer = torch.optim.Adam(model.parameters())
for step in range(4):
    images, labels = torch.rand(8, 3, 224, 224).cuda(), torch.randint(9, (8,)).cuda()
    optimizer.zero_grad()
    loss = F.cross_entropy(model(images), labels)
    loss.backward()
    optimizer.step()
