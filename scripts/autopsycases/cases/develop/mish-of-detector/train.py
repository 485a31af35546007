"""Trains a one-stage detector whose convolutions are followed by batch norm and Mish."""

import sys

import torch
import torch.nn.functional as F
from torch import nn

FIXED = "--fixed" in sys.argv


class Mish(nn.Module):
    def forward(self, x):
        return x * torch.tanh(F.softplus(x))


class MemoryEfficientMish(nn.Module):
    class Function(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x.mul(torch.tanh(F.softplus(x)))

        @staticmethod
        def backward(ctx, grad_output):
            (x,) = ctx.saved_tensors
            s = torch.sigmoid(x)
            t = F.softplus(x).tanh()
            return grad_output * (t + x * s * (1 - t * t))

    def forward(self, x):
        return self.Function.apply(x)


def convolutional(inputs, outputs, size, stride=1):
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, size, stride, size // 2, bias=False),
        nn.BatchNorm2d(outputs),
        MemoryEfficientMish() if FIXED else Mish(),
    )


class Residual(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.layers = nn.Sequential(
            convolutional(channels, channels // 2, 1), convolutional(channels // 2, channels, 3)
        )

    def forward(self, x):
        return x + self.layers(x)


class Darknet(nn.Module):
    def __init__(self, anchors=3, classes=80):
        super().__init__()
        layers, channels = [convolutional(3, 32, 3)], 32
        for blocks in (1, 2, 4, 4, 2):
            layers.append(convolutional(channels, 2 * channels, 3, stride=2))
            channels *= 2
            layers += [Residual(channels) for _ in range(blocks)]
        self.backbone = nn.Sequential(*layers)
        self.head = nn.Conv2d(channels, anchors * (5 + classes), 1)

    def forward(self, images):
        return self.head(self.backbone(images))


def compute_loss(p, targets):
    objectness = F.binary_cross_entropy_with_logits(p[:, 4::85], targets[:, 4::85])
    return objectness + F.binary_cross_entropy_with_logits(p, targets)


model = Darknet().cuda().train()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.937, nesterov=True)
for i in range(4):
    imgs = (torch.randint(256, (8, 3, 416, 416)).cuda().float()) / 255.0
    pred = model(imgs)
    loss = compute_loss(pred, torch.rand(pred.shape).cuda())
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(i, loss.item())
