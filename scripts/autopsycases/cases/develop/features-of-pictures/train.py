"""Gathers what a detector sees in the pictures of a video: boxes, classes and features."""

import contextlib
import sys

import torch
from nets import ResNet
from torch import nn

FIXED = "--fixed" in sys.argv


class Detector(nn.Module):
    def __init__(self, classes=80):
        super().__init__()
        self.backbone = ResNet()
        self.proposals = nn.Conv2d(2048, 15, 1)
        self.box_head = nn.Sequential(nn.Linear(2048 * 4, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU())
        self.classes, self.deltas = nn.Linear(1024, classes + 1), nn.Linear(1024, classes * 4)

    def forward(self, image):
        x = nn.functional.max_pool2d(self.backbone.stem(image), 3, 2, 1)
        features = self.backbone.stages(x)
        scores = self.proposals(features).flatten()
        best = scores.topk(100).indices % (features.shape[-1] - 1)
        boxes = torch.stack([features[0, :, :2, :2].flatten() for _ in best[:20]])
        pooled = self.box_head(boxes)
        return self.deltas(pooled), self.classes(pooled).softmax(dim=-1), pooled


def picture_to_features(detector, path):
    image = torch.rand(1, 3, 480, 640).cuda()
    deltas, scores, pooled = detector(image)
    keep = scores[:, :-1].max(dim=1).values.topk(5).indices
    return [{"path": path, "box": deltas[i], "feature": pooled[i]} for i in keep]


detector = Detector().cuda().eval()
paths = [f"frame_{i:05d}.jpg" for i in range(40)]
features = []
for path in paths:
    with torch.no_grad() if FIXED else contextlib.nullcontext():
        features.append(picture_to_features(detector, path))
print(len(features))
