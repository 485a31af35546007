"""Trains a network to segment the head in ultrasound images, and keeps the metrics of all epochs."""

import contextlib
import sys

import torch
import torch.nn.functional as F
from torch import nn

FIXED = "--fixed" in sys.argv


class SegNet(nn.Module):
    def __init__(self, filters=16):
        super().__init__()
        widths = [1] + [filters << i for i in range(5)]
        self.down = nn.ModuleList(nn.Conv2d(a, b, 3, padding=1) for a, b in zip(widths, widths[1:]))
        up = widths[:0:-1]
        self.up = nn.ModuleList(nn.Conv2d(a, b, 3, padding=1) for a, b in zip(up, up[1:]))
        self.out = nn.Conv2d(filters, 1, 3, padding=1)

    def forward(self, x):
        for i, conv in enumerate(self.down):
            x = F.relu(conv(x))
            x = F.max_pool2d(x, 2) if i < 4 else x
        for conv in self.up:
            x = F.relu(conv(F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False)))
        return self.out(x)


def dice_loss(pred, target, smooth=1e-5):
    intersection = (pred * target).sum(dim=(2, 3))
    union = pred.sum(dim=(2, 3)) + target.sum(dim=(2, 3))
    dice = 2.0 * (intersection + smooth) / (union + smooth)
    return 1.0 - dice.sum(), dice.sum()


def loss_func(pred, target):
    bce = F.binary_cross_entropy_with_logits(pred, target, reduction="sum")
    dlv, _ = dice_loss(torch.sigmoid(pred), target)
    return bce + dlv


def loss_batch(loss_func, output, target, opt=None):
    loss = loss_func(output, target)
    with torch.no_grad() if FIXED else contextlib.nullcontext():
        pred = torch.sigmoid(output)
        _, metric_b = dice_loss(pred, target)
    if opt is not None:
        opt.zero_grad()
        loss.backward()
        opt.step()
    return loss.item(), metric_b


def loss_epoch(model, loss_func, dataset_dl, opt=None):
    running_loss, running_metric, len_data = 0.0, 0.0, 0
    for xb, yb in dataset_dl:
        xb, yb = xb.to("cuda"), yb.to("cuda")
        loss_b, metric_b = loss_batch(loss_func, model(xb), yb, opt)
        running_loss += loss_b
        running_metric += metric_b
        len_data += len(xb)
    return running_loss / len_data, running_metric / len_data


class Batches:
    def __init__(self, batches, size):
        self.batches, self.size = batches, size

    def __iter__(self):
        for _ in range(self.batches):
            yield torch.rand(self.size, 1, 192, 288), torch.randint(2, (self.size, 1, 192, 288)).float()


def train_val(model, num_epochs, opt, train_dl, val_dl):
    loss_history, metric_history = {"train": [], "val": []}, {"train": [], "val": []}
    for epoch in range(num_epochs):
        model.train()
        train_loss, train_metric = loss_epoch(model, loss_func, train_dl, opt)
        loss_history["train"].append(train_loss)
        metric_history["train"].append(train_metric)
        model.eval()
        with torch.no_grad():
            val_loss, val_metric = loss_epoch(model, loss_func, val_dl)
        loss_history["val"].append(val_loss)
        metric_history["val"].append(val_metric)
        print(epoch, train_loss, float(train_metric), val_loss, float(val_metric))
    return loss_history, metric_history


model = SegNet().cuda()
train_val(model, 12, torch.optim.Adam(model.parameters(), lr=3e-4), Batches(40, 8), Batches(5, 16))
