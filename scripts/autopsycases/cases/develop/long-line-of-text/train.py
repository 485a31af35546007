"""Trains a reader of handwritten lines, of which one is far longer than the others."""

import random
import sys

import torch
import torch.nn.functional as F
from torch import nn

FIXED = "--fixed" in sys.argv
HEIGHT, BATCH, MAX_WIDTH = 64, 12, 1500 if FIXED else 6000


class Reader(nn.Module):
    """A convolutional recogniser: [batch, 1, height, width] to [time, batch, characters]."""

    def __init__(self, characters=80):
        super().__init__()
        layers, channels = [], 1
        for to, pool in ((64, (2, 2)), (128, (2, 2)), (256, None), (256, (2, 1)), (512, None), (512, (2, 1))):
            layers += [nn.Conv2d(channels, to, 3, padding=1), nn.BatchNorm2d(to), nn.ReLU()]
            if pool:
                layers.append(nn.MaxPool2d(pool))
            channels = to
        self.cnn = nn.Sequential(*layers)
        self.rows = nn.Conv2d(512, 512, (4, 1))
        self.context = nn.Sequential(
            nn.Conv1d(512, 256, 3, padding=4, dilation=4),
            nn.ReLU(),
            nn.Conv1d(256, 256, 3, padding=8, dilation=8),
            nn.ReLU(),
        )
        self.head = nn.Conv1d(256, characters, 1)

    def forward(self, images):
        x = self.rows(self.cnn(images)).squeeze(2)
        return self.head(self.context(x)).permute(2, 0, 1).log_softmax(2)


def collate(widths):
    """Returns a batch of lines, as wide as the widest of them, and texts to read."""
    widths = [min(w, MAX_WIDTH) for w in widths]
    images = torch.ones(len(widths), 1, HEIGHT, max(widths))
    lengths = torch.tensor([w // 32 for w in widths])
    times = torch.tensor([w // 4 for w in widths])
    return images, torch.randint(1, 80, (int(lengths.sum()),)), lengths, times


model = Reader().cuda()
optimizer = torch.optim.Adam(model.parameters(), lr=2e-4)
draw = random.Random(7)
for step in range(14):
    widths = [draw.randint(500, 1500) for _ in range(BATCH)]
    if step == 9:
        widths[5] = 4800
    images, texts, lengths, times = collate(widths)
    loss = F.ctc_loss(model(images.cuda()).cpu(), texts, times, lengths, zero_infinity=True)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, images.shape)
