"""Trains a network for instance masks and matches predictions with objects in the validation."""

import sys

import torch
import torch.nn.functional as F
from nets import ResNet
from torch import nn

FIXED = "--fixed" in sys.argv
QUERIES, SELECTED = 300, 40 if FIXED else 300


class Segmenter(nn.Module):
    def __init__(self, width=256):
        super().__init__()
        self.backbone = ResNet()
        self.reduce = nn.Conv2d(self.backbone.channels, width, 1)
        self.queries = nn.Parameter(torch.randn(QUERIES, width))

    def forward(self, images):
        x = self.backbone.stages(F.max_pool2d(self.backbone.stem(images), 3, 2, 1))
        x = F.interpolate(self.reduce(x), scale_factor=4)
        return torch.einsum("qc,bchw->bqhw", self.queries, x)


def compute_mask_iou(predicted, wanted):
    a = predicted.flatten(1).float()
    b = wanted.flatten(1).float()
    overlap = a @ b.T
    union = a.sum(1)[:, None] + b.sum(1)[None] - overlap
    return overlap / union.clamp(min=1)


def evaluate(model, images, objects):
    scores = []
    for image, wanted in zip(images, objects):
        masks = model(image[None].cuda())[0, :SELECTED]
        masks = F.interpolate(masks[None], size=image.shape[1:])[0] > 0
        scores.append(compute_mask_iou(masks, wanted.cuda()).max())
    return scores


model = Segmenter().cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
for epoch in range(2):
    model.train()
    for step in range(5):
        images = torch.rand(2, 3, 640, 640).cuda()
        masks = model(images)
        loss = F.binary_cross_entropy_with_logits(masks, torch.rand_like(masks).round())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        print(epoch, evaluate(model, torch.rand(4, 3, 1280, 1920), [torch.ones(60, 1280, 1920) > 0] * 4))
