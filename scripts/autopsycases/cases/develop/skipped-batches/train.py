"""Trains a one-stage detector; batches without a box are skipped, since their loss is zero."""

import sys

import torch
import torch.nn.functional as F
from nets import ResNet
from torch import nn

FIXED = "--fixed" in sys.argv
CLASSES, ANCHORS = 20, 9


class Detector(nn.Module):
    def __init__(self, width=160):
        super().__init__()
        resnet = ResNet()
        self.stem = nn.Sequential(resnet.stem, nn.MaxPool2d(3, 2, 1))
        stages = resnet.stages
        self.stages = nn.ModuleList([stages[:3], stages[3:7], stages[7:13], stages[13:]])
        self.lateral = nn.ModuleList(nn.Conv2d(c, width, 1) for c in (512, 1024, 2048))
        self.regressor = self.head(width, ANCHORS * 4)
        self.classifier = self.head(width, ANCHORS * CLASSES)

    def head(self, width, to):
        layers = []
        for _ in range(4):
            layers += [nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width), nn.SiLU()]
        return nn.Sequential(*layers, nn.Conv2d(width, to, 3, padding=1))

    def forward(self, x):
        x = self.stages[0](self.stem(x))
        levels = []
        for stage, lateral in zip(self.stages[1:], self.lateral):
            x = stage(x)
            levels.append(lateral(x))
        for i in (1, 0):
            levels[i] = levels[i] + F.interpolate(levels[i + 1], size=levels[i].shape[2:])
        flat = lambda y, n: y.permute(0, 2, 3, 1).reshape(len(y), -1, n)
        regression = torch.cat([flat(self.regressor(y), 4) for y in levels], dim=1)
        classification = torch.cat([flat(self.classifier(y), CLASSES) for y in levels], dim=1)
        return regression, classification.sigmoid()


class FocalLoss(nn.Module):
    def forward(self, classification, regression, annotations):
        targets = torch.zeros_like(classification)
        for i, boxes in enumerate(annotations):
            for box in boxes:
                targets[i, box % classification.shape[1], box % CLASSES] = 1
        alpha = torch.where(targets == 1, 0.25, 0.75)
        focal = torch.where(targets == 1, 1 - classification, classification)
        bce = F.binary_cross_entropy(classification, targets, reduction="none")
        cls_loss = (alpha * focal.pow(2) * bce).sum()
        return cls_loss / max(sum(map(len, annotations)), 1), regression.abs().mean()


class ModelWithLoss(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.criterion, self.model = FocalLoss(), model

    def forward(self, imgs, annotations):
        regression, classification = self.model(imgs)
        return self.criterion(classification, regression, annotations)


def training_generator(batches, size=8):
    for i in range(batches):
        boxes = [] if i % 6 == 3 else [[1200 + i, 77 * i, 9000]] * size
        yield {"img": torch.rand(size, 3, 512, 512), "annot": boxes}


model = ModelWithLoss(Detector()).cuda()
optimizer = torch.optim.AdamW(model.parameters(), 1e-4)
epoch_loss = []
for epoch in range(2):
    model.train()
    for iteration, data in enumerate(training_generator(10)):
        imgs = data["img"].cuda()
        annot = data["annot"]
        optimizer.zero_grad()
        cls_loss, reg_loss = model(imgs, annot)
        loss = cls_loss + reg_loss
        if not annot:
            print("nothing to learn from", iteration)
            if FIXED:
                del loss, cls_loss, reg_loss
            continue
        loss.backward()
        optimizer.step()
        epoch_loss.append(float(loss))
