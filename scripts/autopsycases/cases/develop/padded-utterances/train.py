"""Trains a speech encoder on utterances of all lengths; the GPU pads each batch to its longest."""

import random
import sys

import torch
import torch.nn.functional as F
from nets import Block
from torch import nn
from torch.nn.utils.rnn import pad_sequence

FIXED = "--fixed" in sys.argv
FRAMES = 24 * 640  # of a batch, padded, with the fix


class Speech(nn.Module):
    """Frames of a spectrogram to characters: [batch, time, 161] to [batch, time, 29]."""

    def __init__(self, width=512, layers=8, heads=8):
        super().__init__()
        self.embed = nn.Linear(161, width)
        self.blocks = nn.ModuleList(Block(width, heads, causal=False) for _ in range(layers))
        self.head = nn.Linear(width, 29)

    def forward(self, frames):
        x = self.embed(frames)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def batches(lengths):
    """Draws batches of 24, or with the fix of as many of like length as fit into so many padded frames."""
    if not FIXED:
        yield from (lengths[i : i + 24] for i in range(0, len(lengths), 24))
        return
    batch = []
    for n in sorted(lengths):
        if n * (len(batch) + 1) > FRAMES:
            yield batch
            batch = []
        batch.append(n)
    yield batch


def collate(lengths):
    return pad_sequence([torch.rand(n, 161).cuda() for n in lengths], batch_first=True)


draw = random.Random(3)
lengths = (
    [draw.randint(120, 640) for _ in range(24 * 7)] + [2950] + [draw.randint(120, 640) for _ in range(23)]
)
model = Speech().cuda()
optimizer = torch.optim.Adam(model.parameters(), lr=3e-4)
for batch in batches(lengths):
    frames = collate(batch)
    said = model(frames)
    wanted = torch.randint(29, said.shape[:2]).cuda()
    loss = F.cross_entropy(said.flatten(0, 1), wanted.flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(len(batch), max(batch))
