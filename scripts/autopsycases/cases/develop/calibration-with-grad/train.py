"""Calibrates the scales of a language model's activations for FP8 with a few long examples."""

import sys
from contextlib import nullcontext

import torch
from nets import GPT
from torch import nn

FIXED = "--fixed" in sys.argv


class ObservedLinear(nn.Module):
    """A linear layer that keeps the largest input that it has seen."""

    def __init__(self, linear):
        super().__init__()
        self.linear = linear
        self.register_buffer("input_scale", torch.zeros(()))

    def forward(self, x):
        largest = x.detach().abs().amax().float() / 448
        self.input_scale.copy_(torch.maximum(self.input_scale, largest))
        return self.linear(x)


def replace(module):
    for name, child in module.named_children():
        if isinstance(child, nn.Linear) and name != "head":
            setattr(module, name, ObservedLinear(child))
        else:
            replace(child)


class FP8Model:
    def __init__(self):
        self.model = (
            GPT(vocabulary=32_000, width=1024, layers=16, heads=16, context=8192).bfloat16().cuda().eval()
        )

    def quantize(self, examples):
        replace(self.model)
        self.model.cuda()
        with torch.inference_mode() if FIXED else nullcontext():
            for example in examples:
                self.model(example.cuda())
        return [m.input_scale for m in self.model.modules() if isinstance(m, ObservedLinear)]


print(len(FP8Model().quantize([torch.randint(32_000, (1, 8192)) for _ in range(4)])))
