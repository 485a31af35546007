"""Trains with gradients clipped by sample: hooks keep each linear layer's input. Then evaluates."""

import sys

import torch
import torch.nn.functional as F
from nets import Encoder
from torch import nn

FIXED = "--fixed" in sys.argv

model = Encoder(layers=6, width=512, heads=8).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)


def keep_input(module, inputs, output):
    if module.training:
        module.activations.append(inputs[0].detach())


def clip_gradients(module, grad_input, grad_output):
    """Scales the weight's gradient by the norms of the samples' gradients."""
    x = module.activations.pop()
    norms = x.flatten(1).norm(dim=1) * grad_output[0].flatten(1).norm(dim=1)
    module.scale = (1 / norms.clamp(min=1)).mean()


for module in model.modules():
    if isinstance(module, nn.Linear):
        module.activations = []
        module.register_forward_hook(keep_input)
        module.register_full_backward_hook(clip_gradients)


def batch():
    return torch.randint(30522, (16, 256)).cuda(), torch.randint(2, (16,)).cuda()


for epoch in range(2):
    for step in range(5):
        tokens, labels = batch()
        loss = F.cross_entropy(model(tokens), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    right = 0
    model.train(not FIXED)
    with torch.no_grad():
        for step in range(40):
            tokens, labels = batch()
            right += (model(tokens).argmax(1) == labels).sum().item()
    model.train()
    print(epoch, right)
