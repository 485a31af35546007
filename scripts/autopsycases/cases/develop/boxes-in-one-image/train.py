"""Trains a detector that matches all anchors with all boxes of an image, of which some have very many."""

import sys

import torch
import torch.nn.functional as F
from nets import ResNet
from torch import nn

FIXED = "--fixed" in sys.argv
GPU_ASSIGN_THRESHOLD = 300 if FIXED else -1


def bbox_overlaps(a, b):
    lt = torch.max(a[:, None, :2], b[None, :, :2])
    rb = torch.min(a[:, None, 2:], b[None, :, 2:])
    wh = (rb - lt).clamp(min=0)
    overlap = wh[..., 0] * wh[..., 1]
    area_a = (a[:, 2] - a[:, 0]) * (a[:, 3] - a[:, 1])
    area_b = (b[:, 2] - b[:, 0]) * (b[:, 3] - b[:, 1])
    return overlap / (area_a[:, None] + area_b[None] - overlap).clamp(min=1e-6)


class MaxIoUAssigner:
    def assign(self, anchors, boxes):
        device = anchors.device
        if 0 < GPU_ASSIGN_THRESHOLD < len(boxes):
            anchors, boxes = anchors.cpu(), boxes.cpu()
        best, index = bbox_overlaps(anchors, boxes).max(dim=1)
        return best.to(device), index.to(device)


class RetinaNet(nn.Module):
    def __init__(self, channels=256):
        super().__init__()
        self.backbone = ResNet()
        self.reduce = nn.Conv2d(self.backbone.channels, channels, 1)
        self.head = nn.Sequential(nn.Conv2d(channels, channels, 3, padding=1), nn.ReLU(),
                                  nn.Conv2d(channels, 9 * 5, 3, padding=1))

    def forward(self, images):
        features = self.backbone.stages(F.max_pool2d(self.backbone.stem(images), 3, 2, 1))
        return self.head(F.interpolate(self.reduce(features), scale_factor=4))


def loss_of(predictions, boxes, assigner):
    flat = predictions.permute(0, 2, 3, 1).reshape(len(predictions), -1, 5)
    total = 0
    for each, gt in zip(flat, boxes):
        anchors = torch.rand(120_000, 4, device=each.device)
        overlaps, _ = assigner.assign(anchors, gt)
        wanted = (overlaps > 0.5).float().mean()
        total = total + F.binary_cross_entropy_with_logits(each[:, 4], wanted.expand(len(each)))
    return total / len(predictions)


model = RetinaNet().cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
assigner = MaxIoUAssigner()
for counts in [(12, 30), (45, 8), (20, 61), (33, 17), (1900, 25), (14, 40)]:
    images = torch.rand(2, 3, 640, 640).cuda()
    boxes = [torch.rand(n, 4).cuda() for n in counts]
    loss = loss_of(model(images), boxes, assigner)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(counts, loss.item())
