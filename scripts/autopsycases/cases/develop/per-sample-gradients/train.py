"""Trains with differential privacy: hooks keep a gradient of each weight for each sample."""

import sys

import torch
import torch.nn.functional as F
from nets import Encoder
from torch import nn

FIXED = "--fixed" in sys.argv
BATCH, PHYSICAL = 64, 8 if FIXED else 64


class GradSample:
    """Computes p.grad_sample of linear layers from their inputs and the gradients of their outputs."""

    def __init__(self, model):
        self.inputs = {}
        for module in model.modules():
            if isinstance(module, nn.Linear):
                module.register_forward_hook(self.keep)
                module.register_full_backward_hook(self.compute)

    def keep(self, module, inputs, _):
        if module.training:
            self.inputs[module] = inputs[0].detach()

    def compute(self, module, _, gradients):
        x, g = self.inputs.pop(module), gradients[0]
        if x.dim() == 2:
            x, g = x.unsqueeze(1), g.unsqueeze(1)
        module.weight.grad_sample = torch.einsum("bti,bto->boi", x, g)


model = Encoder(width=512, layers=6, heads=8).cuda()
trained = [m.weight for m in model.modules() if isinstance(m, nn.Linear)]
GradSample(model)
optimizer = torch.optim.SGD(trained, lr=0.1)


def clip_and_accumulate(limit=1.0):
    norms = torch.stack([p.grad_sample.flatten(1).norm(dim=1) for p in trained]).norm(dim=0)
    factor = (limit / (norms + 1e-6)).clamp(max=1.0)
    for p in trained:
        total = torch.einsum("b,boi->oi", factor, p.grad_sample)
        p.summed = total if getattr(p, "summed", None) is None else p.summed + total
        p.grad_sample = None


for step in range(3):
    tokens, labels = torch.randint(30522, (BATCH, 128)), torch.randint(2, (BATCH,))
    for x, y in zip(tokens.split(PHYSICAL), labels.split(PHYSICAL)):
        loss = F.cross_entropy(model(x.cuda()), y.cuda())
        optimizer.zero_grad()
        loss.backward()
        clip_and_accumulate()
    for p in trained:
        p.grad = (p.summed + torch.randn_like(p.summed)) / BATCH
        p.summed = None
    optimizer.step()
    print(step)
