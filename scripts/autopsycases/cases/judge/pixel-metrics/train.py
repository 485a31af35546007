"""Validates an anomaly detector: pixel metrics keep all anomaly maps until the end of the epoch."""

import sys

import torch
import torch.nn.functional as F
from nets import ResNet

FIXED = "--fixed" in sys.argv


class PixelAUROC:
    """The area under the ROC curve; of the pixels of all images."""

    def __init__(self):
        self.preds, self.target = [], []

    def update(self, preds, target):
        self.preds.append(preds)
        self.target.append(target)

    def compute(self):
        preds, target = torch.cat(self.preds)[::997], torch.cat(self.target)[::997]
        order = torch.argsort(preds, descending=True)
        hits = target[order].cumsum(0)
        return hits.float().mean() / hits[-1].clamp(min=1)


teacher = ResNet().cuda().eval().requires_grad_(False)
student = ResNet().cuda()
optimizer = torch.optim.SGD(student.parameters(), lr=0.4, momentum=0.9)
size = (512, 512)
for epoch in range(1):
    student.train()
    for step in range(3):
        images = torch.rand(8, 3, 256, 256, device="cuda")
        with torch.no_grad():
            wanted = teacher.features(images)
        loss = F.mse_loss(student.features(images), wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    student.eval()
    metric = PixelAUROC()
    with torch.no_grad():
        for batch in range(14):
            images = torch.rand(32, 3, 256, 256, device="cuda")
            mask = torch.randint(2, (32, *size), device="cuda")
            maps = [m.stages[:7](F.max_pool2d(m.stem(images), 3, 2, 1)) for m in (teacher, student)]
            anomaly = (maps[0] - maps[1]).square().mean(dim=1, keepdim=True)
            anomaly = F.interpolate(anomaly, size=size, mode="bilinear").flatten()
            mask = mask.flatten()
            metric.update(*((anomaly.cpu(), mask.cpu()) if FIXED else (anomaly, mask)))
        print(epoch, metric.compute().item())
