"""Transcribes recordings with a speech encoder that has relative positions."""

import sys

import torch
import torch.nn.functional as F
from torch import nn

FIXED = "--fixed" in sys.argv
WIDTH, HEADS, LAYERS, FRAMES = 512, 8, 17, 3000


class RelativeAttention(nn.Module):
    """Self-attention with a bias for each pair of frames, as Transformer-XL has it."""

    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.position = nn.Linear(WIDTH, WIDTH, bias=False)
        self.u = nn.Parameter(torch.zeros(HEADS, 1, WIDTH // HEADS))
        self.out = nn.Linear(WIDTH, WIDTH)
        self._rel_pos_bias = None

    def bias(self, q, positions):
        b, h, t, d = q.shape
        p = self.position(positions).view(-1, h, d).transpose(0, 1)
        scores = (q + self.u) @ p.transpose(-2, -1)
        # Row i of the result begins at the distance of frame i to the first one.
        scores = F.pad(scores, (1, 0)).view(b, h, -1, t)[:, :, 1:].view(b, h, t, 2 * t - 1)
        return scores[..., :t] / d**0.5

    def forward(self, x, positions):
        b, t, _ = x.shape
        q, k, v = (y.view(b, t, HEADS, WIDTH // HEADS).transpose(1, 2) for y in self.qkv(x).chunk(3, dim=-1))
        bias = self.bias(q, positions).contiguous()
        if not FIXED:
            self._rel_pos_bias = bias
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=bias)
        return self.out(y.transpose(1, 2).reshape(b, t, WIDTH))


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attention = RelativeAttention()
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.SiLU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x, positions):
        x = x + self.attention(self.norm1(x), positions)
        return x + self.mlp(self.norm2(x))


class Transcriber(nn.Module):
    def __init__(self):
        super().__init__()
        self.mel = nn.Linear(80, WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.head = nn.Linear(WIDTH, 1025)

    def forward(self, mel):
        x = self.mel(mel)
        positions = torch.randn(2 * x.shape[1] - 1, WIDTH, device=x.device)
        for layer in self.layers:
            x = layer(x, positions)
        return self.head(x).argmax(dim=-1)


model = Transcriber().cuda().eval()
with torch.inference_mode():
    for i, frames in enumerate((800, 1200, FRAMES)):
        ids = model(torch.randn(4, frames, 80).cuda())
        print("batch", i, ids.shape)
