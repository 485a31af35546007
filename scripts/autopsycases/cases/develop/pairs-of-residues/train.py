"""Predicts the structure of a long protein: attention along the edges of triangles of residues."""

import sys

import torch
import torch.nn.functional as F
from torch import nn

FIXED = "--fixed" in sys.argv
LENGTH, PAIR, HEADS, DIM = 1000, 128, 4, 32


class TriangleAttention(nn.Module):
    """Each row of the pair representation attends to itself, with a bias from the third edge."""

    def __init__(self, chunk):
        super().__init__()
        self.chunk = chunk
        self.norm = nn.LayerNorm(PAIR)
        self.qkv = nn.Linear(PAIR, 3 * HEADS * DIM, bias=False)
        self.bias, self.gate = nn.Linear(PAIR, HEADS, bias=False), nn.Linear(PAIR, HEADS * DIM)
        self.out = nn.Linear(HEADS * DIM, PAIR)

    def attend(self, rows, bias):
        n, length, _ = rows.shape
        q, k, v = self.qkv(rows).view(n, length, 3, HEADS, DIM).permute(2, 0, 3, 1, 4)
        scores = torch.matmul(q * DIM**-0.5, k.transpose(-1, -2))
        scores += bias
        weights = F.softmax(scores, dim=-1)
        mixed = torch.matmul(weights, v).transpose(1, 2).reshape(n, length, HEADS * DIM)
        return self.out(mixed * torch.sigmoid(self.gate(rows)))

    def forward(self, pair):
        pair = self.norm(pair)
        bias = self.bias(pair).permute(2, 0, 1)[None]
        if self.chunk is None:
            return self.attend(pair, bias)
        return torch.cat([self.attend(rows, bias) for rows in pair.split(self.chunk)])


class Transition(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.LayerNorm(PAIR), nn.Linear(PAIR, 2 * PAIR), nn.ReLU(), nn.Linear(2 * PAIR, PAIR)
        )

    def forward(self, pair):
        return self.layers(pair)


class Evoformer(nn.Module):
    def __init__(self, blocks, chunk):
        super().__init__()
        self.embed = nn.Linear(2 * 21, PAIR)
        self.blocks = nn.ModuleList(
            nn.ModuleList([TriangleAttention(chunk), TriangleAttention(chunk), Transition()])
            for _ in range(blocks)
        )

    def forward(self, residues):
        left = residues[:, None].expand(-1, len(residues), -1)
        pair = self.embed(torch.cat([left, left.transpose(0, 1)], dim=-1))
        for start, end, transition in self.blocks:
            pair = pair + start(pair)
            pair = pair + end(pair.transpose(0, 1)).transpose(0, 1)
            pair = pair + transition(pair)
        return pair


model = Evoformer(4, 64 if FIXED else None).cuda().eval()
with torch.no_grad():
    print(model(torch.rand(LENGTH, 21).cuda()).shape)
