"""Loads a mixture of experts whose weights are packed again, layer by layer, and serves one batch."""

import sys

import torch

FIXED = "--fixed" in sys.argv
MIB = 1 << 20
UP, DOWN = 530 * MIB, 270 * MIB


def load(size):
    """Reads a weight of as many bytes onto the device."""
    return torch.empty(size, dtype=torch.uint8, device="cuda")


def convert_layout(weight):
    """Returns the weight in another order of its bytes."""
    return weight.view(-1, 2 * MIB).flip(0).contiguous().view(-1)


if FIXED:
    torch.cuda.memory._set_allocator_settings("max_split_size_mb:20")
layers = []
for layer in range(14):
    up, down = load(UP), load(DOWN)
    up = convert_layout(up)
    down = convert_layout(down)
    layers.append((up, down))
hidden = torch.rand(512, 2880, device="cuda", dtype=torch.bfloat16)
cache = torch.empty(14, 64, 4096, 2, 64, device="cuda", dtype=torch.bfloat16)
print(len(layers), hidden.shape, cache.shape)
