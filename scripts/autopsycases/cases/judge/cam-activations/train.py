"""Explains predictions: hooks collect activations and gradients of a layer."""

import sys

import torch
import torch.nn.functional as F
from nets import ResNet

FIXED = "--fixed" in sys.argv


model = ResNet().cuda().eval()
activations, gradients = [], []


def keep(module, inputs, output):
    activations.append(output.cpu().detach() if FIXED else output)
    output.register_hook(lambda g: gradients.append(g.cpu() if FIXED else g))


model.stages[6].register_forward_hook(keep)
for image in range(24):
    x = torch.rand(16, 3, 224, 224).cuda()
    score = F.softmax(model(x), dim=-1)[:, 0].sum()
    model.zero_grad()
    score.backward()
    print(image, activations[-1].shape)
