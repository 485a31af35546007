"""Trains a detector of tables whose predictions are matched with the objects of all images of the batch."""

import sys

import torch
import torch.nn.functional as F
from nets import Block, ResNet
from torch import nn

FIXED = "--fixed" in sys.argv
BATCH, QUERIES, CLASSES, OBJECTS = 16, 300, 7, 1200


class DETR(nn.Module):
    def __init__(self, width=256):
        super().__init__()
        backbone = ResNet()
        self.backbone = nn.Sequential(backbone.stem, nn.MaxPool2d(3, 2, 1), backbone.stages)
        self.project = nn.Conv2d(2048, width, 1)
        self.queries = nn.Parameter(torch.rand(QUERIES, width))
        self.blocks = nn.ModuleList(Block(width, 8, causal=False) for _ in range(6))
        self.classes, self.boxes = nn.Linear(width, CLASSES), nn.Linear(width, 4)

    def forward(self, images):
        seen = self.project(self.backbone(images)).flatten(2).transpose(1, 2)
        x = torch.cat([self.queries.expand(len(images), -1, -1), seen], dim=1)
        for block in self.blocks:
            x = block(x)
        x = x[:, :QUERIES]
        return self.classes(x), self.boxes(x).sigmoid()


def corners(boxes):
    center, size = boxes.chunk(2, dim=-1)
    return torch.cat([center - size / 2, center + size / 2], dim=-1)


def generalized_box_iou(a, b):
    areas = [(x[:, 2:] - x[:, :2]).prod(1) for x in (a, b)]
    sides = (torch.min(a[:, None, 2:], b[:, 2:]) - torch.max(a[:, None, :2], b[:, :2])).clamp(min=0)
    inter = sides[..., 0] * sides[..., 1]
    union = areas[0][:, None] + areas[1] - inter
    around = (torch.max(a[:, None, 2:], b[:, 2:]) - torch.min(a[:, None, :2], b[:, :2])).clamp(min=0)
    area = around[..., 0] * around[..., 1]
    return inter / union - (area - union) / area


class HungarianMatcher(nn.Module):
    def costs(self, scores, boxes, labels, wanted):
        distance = torch.cdist(boxes, wanted, p=1)
        return 5 * distance - scores[:, labels] - 2 * generalized_box_iou(corners(boxes), corners(wanted))

    @torch.no_grad()
    def forward(self, scores, boxes, targets):
        scores = scores.softmax(-1)
        if FIXED:
            costs = [
                self.costs(s, b, t["labels"], t["boxes"]).cpu() for s, b, t in zip(scores, boxes, targets)
            ]
        else:
            labels, wanted = (torch.cat([t[k] for t in targets]) for k in ("labels", "boxes"))
            cost = self.costs(scores.flatten(0, 1), boxes.flatten(0, 1), labels, wanted)
            cost = cost.view(len(scores), QUERIES, -1).cpu()
            costs = [c[i] for i, c in enumerate(cost.split([len(t["labels"]) for t in targets], -1))]
        return [c.argmin(1) % c.shape[1] for c in costs]


model, matcher = DETR().cuda(), HungarianMatcher()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
for step in range(4):
    images = torch.rand(BATCH, 3, 224, 224).cuda()
    targets = [
        {"labels": torch.randint(CLASSES, (OBJECTS,)).cuda(), "boxes": torch.rand(OBJECTS, 4).cuda()}
        for _ in range(BATCH)
    ]
    scores, boxes = model(images)
    matched = matcher(scores, boxes, targets)
    loss = sum(
        F.l1_loss(b, t["boxes"][m.cuda()]) + F.cross_entropy(s, t["labels"][m.cuda()])
        for s, b, t, m in zip(scores, boxes, targets, matched)
    )
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
