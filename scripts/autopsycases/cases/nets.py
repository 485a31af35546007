"""The networks that cases train: common architectures, written for this collection."""

import math

import torch
import torch.nn.functional as F
from torch import nn


class Attention(nn.Module):
    """Causal or bidirectional self-attention over [batch, time, width].

    math spells softmax(QK^T)V out, as most code did before scaled_dot_product_attention.
    """

    def __init__(self, width, heads, causal=True, math=False, dropout=0.0):
        super().__init__()
        self.heads, self.causal, self.math, self.dropout = heads, causal, math, dropout
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x):
        b, t, w = x.shape
        q, k, v = (
            p.view(b, t, self.heads, w // self.heads).transpose(1, 2) for p in self.qkv(x).chunk(3, dim=-1)
        )
        p = self.dropout if self.training else 0.0
        if self.math:
            scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
            if self.causal:
                future = torch.ones(t, t, dtype=torch.bool, device=x.device).triu(1)
                scores = scores.masked_fill(future, float("-inf"))
            y = F.dropout(F.softmax(scores, dim=-1), p) @ v
        else:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal, dropout_p=p)
        return self.out(y.transpose(1, 2).reshape(b, t, w))


class Block(nn.Module):
    """A pre-norm transformer block."""

    def __init__(self, width, heads, **attention):
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attention = Attention(width, heads, **attention)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class GPT(nn.Module):
    """A decoder-only language model: [batch, time] of tokens to [batch, time, vocabulary] of logits."""

    def __init__(self, vocabulary=50257, width=768, layers=12, heads=12, context=1024, **attention):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(context, width)
        self.blocks = nn.ModuleList(Block(width, heads, **attention) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)

    def features(self, tokens):
        x = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = block(x)
        return self.norm(x)

    def forward(self, tokens):
        return self.head(self.features(tokens))


class Encoder(nn.Module):
    """A BERT-like encoder with a classifier on the first token."""

    def __init__(self, vocabulary=30522, width=768, layers=12, heads=12, context=512, classes=2, **attention):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(context, width)
        self.blocks = nn.ModuleList(Block(width, heads, causal=False, **attention) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.classifier = nn.Linear(width, classes)

    def features(self, tokens):
        x = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = block(x)
        return self.norm(x)

    def forward(self, tokens):
        return self.classifier(self.features(tokens)[:, 0])


class Bottleneck(nn.Module):
    """ResNet's residual block of three convolutions."""

    def __init__(self, channels, inner, stride):
        super().__init__()
        self.a = nn.Sequential(nn.Conv2d(channels, inner, 1, bias=False), nn.BatchNorm2d(inner))
        self.b = nn.Sequential(nn.Conv2d(inner, inner, 3, stride, 1, bias=False), nn.BatchNorm2d(inner))
        self.c = nn.Sequential(nn.Conv2d(inner, 4 * inner, 1, bias=False), nn.BatchNorm2d(4 * inner))
        self.skip = nn.Identity()
        if stride != 1 or channels != 4 * inner:
            self.skip = nn.Sequential(
                nn.Conv2d(channels, 4 * inner, 1, stride, bias=False), nn.BatchNorm2d(4 * inner)
            )

    def forward(self, x):
        y = self.c(F.relu(self.b(F.relu(self.a(x)))))
        return F.relu(y + self.skip(x))


class ResNet(nn.Module):
    """ResNet-50 (or -101 with depths 3, 4, 23, 3): [batch, 3, height, width] to classes."""

    def __init__(self, depths=(3, 4, 6, 3), classes=1000):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU())
        stages, channels = [], 64
        for i, depth in enumerate(depths):
            inner = 64 << i
            for j in range(depth):
                stages.append(Bottleneck(channels, inner, 2 if i and not j else 1))
                channels = 4 * inner
        self.stages = nn.Sequential(*stages)
        self.channels = channels
        self.classifier = nn.Linear(channels, classes)

    def features(self, images):
        return self.stages(F.max_pool2d(self.stem(images), 3, 2, 1)).mean(dim=(2, 3))

    def forward(self, images):
        return self.classifier(self.features(images))


def twice(channels, to):
    """Two convolutions with batch norm and ReLU."""
    layers = []
    for a, b in ((channels, to), (to, to)):
        layers += [nn.Conv2d(a, b, 3, padding=1, bias=False), nn.BatchNorm2d(b), nn.ReLU(inplace=True)]
    return nn.Sequential(*layers)


class UNet(nn.Module):
    """A U-Net: [batch, channels, height, width] to [batch, classes, height, width]."""

    def __init__(self, channels=3, classes=2, width=64, levels=4):
        super().__init__()
        self.first = twice(channels, width)
        self.down = nn.ModuleList(twice(width << i, width << (i + 1)) for i in range(levels))
        self.up = nn.ModuleList(
            nn.ConvTranspose2d(width << (i + 1), width << i, 2, 2) for i in reversed(range(levels))
        )
        self.merge = nn.ModuleList(twice(width << (i + 1), width << i) for i in reversed(range(levels)))
        self.head = nn.Conv2d(width, classes, 1)

    def forward(self, x):
        x = self.first(x)
        skips = []
        for down in self.down:
            skips.append(x)
            x = down(F.max_pool2d(x, 2))
        for up, merge in zip(self.up, self.merge):
            x = merge(torch.cat([skips.pop(), up(x)], dim=1))
        return self.head(x)
