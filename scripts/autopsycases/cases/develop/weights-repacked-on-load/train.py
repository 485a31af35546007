"""Loads an expert model of 4-bit weights for serving: each layer's weights get another layout as it is loaded."""

import sys

import torch
from torch import nn

FIXED = "--fixed" in sys.argv
EXPERTS, HIDDEN, INNER = 16, 2880, 2880


def convert_layout(packed):
    """Returns weights in the layout that the kernels want: as many bytes, in tiles."""
    e, rows, columns = packed.shape
    tiles = packed.view(e, rows // 16, 16, columns // 16, 16).transpose(2, 3).contiguous()
    return tiles.view(e, rows, columns)


class Experts(nn.Module):
    """Gate and up projections in one matrix, and the down projection, two weights in a byte."""

    def __init__(self):
        super().__init__()
        self.w13 = nn.Parameter(torch.empty(EXPERTS, 2 * INNER, HIDDEN // 2, dtype=torch.uint8), False)
        # padded, as the kernels want whole tiles of scales
        self.w2 = nn.Parameter(torch.empty(EXPERTS, HIDDEN, INNER // 2 + 32, dtype=torch.uint8), False)

    def process_weights_after_loading(self):
        self.w13 = nn.Parameter(convert_layout(self.w13.data), False)
        self.w2 = nn.Parameter(convert_layout(self.w2.data), False)


def load_model(layers=30):
    """Loads one layer after the other, so that no more than one is there in both layouts."""
    model = nn.ModuleList()
    for _ in range(layers):
        layer = Experts().cuda()
        layer.process_weights_after_loading()
        model.append(layer)
    return model


if FIXED:
    torch.cuda.memory._set_allocator_settings("max_split_size_mb:20")
model = load_model()
print(torch.cuda.memory_allocated() >> 20, "MiB of weights", torch.cuda.memory_reserved() >> 20, "reserved")
