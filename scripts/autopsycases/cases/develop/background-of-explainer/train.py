"""Explains an image classifier against a background of other images (DeepLIFT and SHAP)."""

import sys

import torch
from nets import twice
from torch import nn

FIXED = "--fixed" in sys.argv
BACKGROUND = 10 if FIXED else 100


class VGG(nn.Module):
    def __init__(self, classes=1000):
        super().__init__()
        layers, channels = [], 3
        for to in (64, 128, 256, 512, 512):
            layers += [twice(channels, to), nn.MaxPool2d(2)]
            channels = to
        self.features = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.classifier = nn.Linear(512, classes)

    def forward(self, x):
        return self.classifier(self.features(x))


class DeepExplainer:
    def __init__(self, model, data):
        self.model, self.data = model.eval(), data
        with torch.no_grad():
            self.expected_value = model(data[:10]).mean(0)

    def gradient(self, index, x):
        self.model.zero_grad()
        x.requires_grad_(True)
        outputs = self.model(x)
        return torch.autograd.grad(outputs[:, index].sum(), x)[0]

    def shap_values(self, images, ranked_outputs=1):
        with torch.no_grad():
            ranks = self.model(images).topk(ranked_outputs, dim=1).indices.cpu()
        values = []
        for image, rank in zip(images, ranks):
            tiled = image[None].repeat(len(self.data), 1, 1, 1)
            joint = torch.cat([tiled, self.data])
            for index in rank:
                gradient = self.gradient(int(index) % 1000, joint)
                values.append((gradient[: len(tiled)] * (tiled - self.data)).mean(0).cpu())
        return values


explainer = DeepExplainer(VGG().cuda(), torch.rand(BACKGROUND, 3, 224, 224).cuda())
print(len(explainer.shap_values(torch.rand(4, 3, 224, 224).cuda())))
