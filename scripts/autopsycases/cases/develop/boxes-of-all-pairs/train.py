"""Trains a detector with several groups of queries; every layer of the decoder has a loss of its own."""

import sys

import torch
import torch.nn.functional as F
from nets import Block, ResNet
from torch import nn

FIXED = "--fixed" in sys.argv
GROUPS, QUERIES, CLASSES, OBJECTS = 13, 300, 90, 60


class Detector(nn.Module):
    def __init__(self, width=256, layers=3):
        super().__init__()
        backbone = ResNet()
        self.backbone = nn.Sequential(backbone.stem, nn.MaxPool2d(3, 2, 1), backbone.stages)
        self.project = nn.Conv2d(2048, width, 1)
        self.queries = nn.Parameter(torch.rand(GROUPS * QUERIES, width))
        self.decoder = nn.ModuleList(Block(width, 8, causal=False) for _ in range(layers))
        self.classes, self.boxes = nn.Linear(width, CLASSES), nn.Linear(width, 4)

    def forward(self, images):
        seen = self.project(self.backbone(images)).flatten(2).transpose(1, 2)
        x = torch.cat([self.queries.expand(len(images), -1, -1), seen], dim=1)
        outputs = []
        for layer in self.decoder:
            x = layer(x)
            of_queries = x[:, : len(self.queries)]
            outputs.append((self.classes(of_queries), self.boxes(of_queries).sigmoid()))
        return outputs


def corners(boxes):
    center, size = boxes.chunk(2, dim=-1)
    return torch.cat([center - size / 2, center + size / 2], dim=-1)


def area(boxes):
    return (boxes[..., 2:] - boxes[..., :2]).prod(-1)


def generalized_box_iou(a, b):
    if not FIXED:
        a, b = a[:, None], b[None]
    inter = (torch.min(a[..., 2:], b[..., 2:]) - torch.max(a[..., :2], b[..., :2])).clamp(min=0).prod(-1)
    union = area(a) + area(b) - inter
    around = (torch.max(a[..., 2:], b[..., 2:]) - torch.min(a[..., :2], b[..., :2])).clamp(min=0).prod(-1)
    return inter / union - (around - union) / around


class SetCriterion(nn.Module):
    def loss_boxes(self, boxes, wanted):
        overlap = generalized_box_iou(corners(boxes), corners(wanted))
        if not FIXED:
            overlap = torch.diag(overlap)
        return F.l1_loss(boxes, wanted) + (1 - overlap).mean()

    def forward(self, outputs, labels, wanted):
        total = 0
        for scores, boxes in outputs:
            source = torch.randint(QUERIES, (len(boxes), GROUPS, OBJECTS)).cuda()
            source = (source + QUERIES * torch.arange(GROUPS, device="cuda")[:, None]).flatten(1)
            rows = torch.arange(len(boxes), device="cuda")[:, None]
            total = total + self.loss_boxes(boxes[rows, source].flatten(0, 1), wanted.flatten(0, 1))
            total = total + F.cross_entropy(scores[rows, source].flatten(0, 1), labels.flatten())
        return total


model, criterion = Detector().cuda(), SetCriterion()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
for step in range(3):
    images = torch.rand(16, 3, 320, 320).cuda()
    labels = torch.randint(CLASSES, (16, OBJECTS)).cuda().repeat(1, GROUPS)
    wanted = torch.rand(16, OBJECTS, 4).cuda().repeat(1, GROUPS, 1)
    loss = criterion(model(images), labels, wanted)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
