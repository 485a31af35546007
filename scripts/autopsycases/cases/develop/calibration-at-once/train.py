"""Quantizes a language model layer by layer with the inputs that a calibration set makes."""

import sys

import torch
from nets import Block
from torch import nn

FIXED = "--fixed" in sys.argv
SAMPLES, LENGTH, WIDTH = 256, 512, 1536
PARALLEL = 16 if FIXED else SAMPLES


class Quantizer:
    def __init__(self, layers, inputs):
        self.layers, self.inputs = layers, inputs

    @torch.no_grad()
    def module_forward(self, module, x):
        if PARALLEL >= len(x):
            return module(x.cuda())
        return torch.cat([module(part.cuda()).cpu() for part in x.split(PARALLEL)])

    def into(self, features):
        def hook(module, inputs, output):
            features.append(output.abs().mean((0, 1)))

        return hook

    @torch.no_grad()
    def quantize(self):
        for number, layer in enumerate(self.layers):
            layer = layer.cuda()
            features = []
            handle = layer.norm1.register_forward_hook(self.into(features))
            self.inputs = self.module_forward(layer, self.inputs)
            handle.remove()
            self.search_scales(layer, torch.stack(features).mean(0))
            layer.cpu()
            print("layer", number)

    def search_scales(self, layer, importance):
        for linear in (m for m in layer.modules() if isinstance(m, nn.Linear)):
            if linear.in_features == len(importance):
                scale = importance.clamp(min=1e-4).sqrt()
                linear.weight.div_(scale).round_().mul_(scale)


layers = [Block(WIDTH, 16).half() for _ in range(4)]
Quantizer(layers, torch.randn(SAMPLES, LENGTH, WIDTH).half()).quantize()
