"""Paints an image in the style of another by optimizing its pixels with L-BFGS."""

import sys

import torch
from torch import nn

FIXED = "--fixed" in sys.argv
SIZE = 1024


def vgg():
    layers, channels = [], 3
    for to in (64, 64, "pool", 128, 128, "pool", 256, 256, 256, "pool", 512):
        if to == "pool":
            layers.append(nn.AvgPool2d(2))
            continue
        layers += [nn.Conv2d(channels, to, 3, padding=1), nn.ReLU(inplace=True)]
        channels = to
    return nn.Sequential(*layers)


def gram(x):
    x = x.flatten(2)
    return x @ x.transpose(1, 2) / x.shape[2]


network = vgg().cuda().requires_grad_(False)


def features(image):
    out, x = [], image
    for layer in network:
        x = layer(x)
        if isinstance(layer, nn.AvgPool2d):
            out.append(x)
    return [*out, x]


with torch.no_grad():
    content = features(torch.rand(1, 3, SIZE, SIZE).cuda())[-1]
    style = [gram(x) for x in features(torch.rand(1, 3, SIZE, SIZE).cuda())]
image = torch.rand(1, 3, SIZE, SIZE, device="cuda", requires_grad=True)
optimizer = torch.optim.Adam([image], lr=1) if FIXED else torch.optim.LBFGS([image], max_iter=200)


def closure():
    optimizer.zero_grad()
    found = features(image)
    loss = (found[-1] - content).square().mean()
    for x, y in zip(found, style):
        loss = loss + 1e3 * (gram(x) - y).square().mean()
    loss.backward()
    return loss


for iteration in range(120 if FIXED else 2):
    print(optimizer.step(closure).item())
