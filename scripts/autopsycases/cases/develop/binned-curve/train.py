"""Trains a segmentation model and follows its precision at 200 thresholds."""

import sys

import torch
import torch.nn.functional as F
from nets import UNet

FIXED = "--fixed" in sys.argv


class BinnedPrecisionRecallCurve:
    """Confusion matrices at evenly spaced thresholds: a state of constant size."""

    def __init__(self, thresholds):
        self.thresholds = torch.linspace(0, 1, thresholds).cuda()
        self.confusion = torch.zeros(thresholds, 2, 2, dtype=torch.int64).cuda()

    def update(self, preds, target):
        preds, target = preds.flatten(), target.flatten()
        if FIXED:
            for i, threshold in enumerate(self.thresholds):
                bins = torch.bincount(target + 2 * (preds >= threshold).long(), minlength=4)
                self.confusion[i] += bins[:4].view(2, 2)
            return
        above = (preds.unsqueeze(-1) >= self.thresholds.unsqueeze(0)).long()
        unique = target.unsqueeze(-1) + 2 * above + 4 * torch.arange(len(self.thresholds)).cuda()
        bins = torch.bincount(unique.flatten(), minlength=4 * len(self.thresholds))
        self.confusion += bins[: 4 * len(self.thresholds)].view(-1, 2, 2)


net = UNet(classes=1, width=32).cuda()
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4)
metric = BinnedPrecisionRecallCurve(200)
for step in range(4):
    images = torch.rand(8, 3, 512, 512).cuda()
    masks = torch.randint(2, (8, 512, 512)).cuda()
    logits = net(images).squeeze(1)
    loss = F.binary_cross_entropy_with_logits(logits, masks.float())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    metric.update(logits.detach().sigmoid(), masks)
print(metric.confusion.shape)
