"""Fits one set of codes after the other and asks for the gradient's own gradient."""

import sys

import torch
import torch.nn.functional as F
from nets import UNet

FIXED = "--fixed" in sys.argv


decoder = UNet(channels=8, classes=3, width=32).cuda().requires_grad_(False)
for image in range(40):
    target = torch.rand(2, 3, 256, 256).cuda()
    code = torch.zeros(2, 8, 256, 256).cuda().requires_grad_()
    loss = F.mse_loss(decoder(code), target)
    if FIXED:
        (gradient,) = torch.autograd.grad(loss, code, create_graph=True)
    else:
        loss.backward(create_graph=True)
        gradient = code.grad
    print(image, gradient.norm().item())
