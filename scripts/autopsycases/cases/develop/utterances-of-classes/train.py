"""Trains an encoder of spoken words with a triplet loss; a batch has some utterances of each word."""

import sys

import torch
import torch.nn.functional as F
from torch import nn

FIXED = "--fixed" in sys.argv
WORDS = 35


class SpeechResModel(nn.Module):
    """Res15: thirteen convolutions that keep the size of the features."""

    def __init__(self, n_layers=13, n_maps=45):
        super().__init__()
        self.conv0 = nn.Conv2d(1, n_maps, 3, padding=1, bias=False)
        self.convs, self.bns = nn.ModuleList(), nn.ModuleList()
        for i in range(n_layers):
            d = 2 ** (i // 3)
            self.convs.append(nn.Conv2d(n_maps, n_maps, 3, padding=d, dilation=d, bias=False))
            self.bns.append(nn.BatchNorm2d(n_maps, affine=False))

    def forward(self, x):
        x = old_x = F.relu(self.conv0(x))
        for i, (conv, bn) in enumerate(zip(self.convs, self.bns)):
            y = F.relu(conv(x))
            if i % 2 == 1:
                y = old_x = y + old_x
            x = bn(y)
        return x.flatten(2).mean(dim=2)


class OnlineTripletLoss(nn.Module):
    def __init__(self, margin):
        super().__init__()
        self.margin = margin

    def forward(self, embeddings, targets):
        distances = torch.cdist(embeddings, embeddings)
        same = targets[:, None] == targets[None, :]
        hardest_positive = distances.masked_fill(~same, 0).amax(dim=1)
        hardest_negative = distances.masked_fill(same, 1e6).amin(dim=1)
        return F.relu(hardest_positive - hardest_negative + self.margin).mean()


def batch_sampler(batches, per_class):
    for _ in range(batches):
        labels = torch.arange(WORDS).repeat_interleave(per_class)
        yield torch.rand(len(labels), 1, 40, 101), labels


model = SpeechResModel().cuda()
criterion = OnlineTripletLoss(margin=1.0)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for step, (features, labels) in enumerate(batch_sampler(4, per_class=5 if FIXED else 10)):
    embeddings = model(features.cuda())
    loss = criterion(embeddings, labels.cuda())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())
