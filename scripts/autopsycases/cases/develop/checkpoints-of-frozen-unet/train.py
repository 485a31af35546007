"""Tunes only the text encoder of a diffusion model; the U-Net, with checkpoints, stays as it is."""

import sys

import torch
import torch.nn.functional as F
from nets import Attention, Block
from torch import nn
from torch.utils.checkpoint import checkpoint

FIXED = "--fixed" in sys.argv


class CrossAttention(nn.Module):
    def __init__(self, width, context, heads=8):
        super().__init__()
        self.heads = heads
        self.to_q = nn.Linear(width, width, bias=False)
        self.to_kv = nn.Linear(context, 2 * width, bias=False)
        self.to_out = nn.Linear(width, width)

    def forward(self, x, context):
        def split(y):
            return y.unflatten(-1, (self.heads, -1)).transpose(1, 2)

        k, v = self.to_kv(context).chunk(2, dim=-1)
        y = F.scaled_dot_product_attention(split(self.to_q(x)), split(k), split(v))
        return self.to_out(y.transpose(1, 2).flatten(2))


class SpatialBlock(nn.Module):
    """Two convolutions and a transformer over all places, which look at the text."""

    def __init__(self, width, context=768):
        super().__init__()
        self.convolutions = nn.Sequential(
            nn.GroupNorm(32, width),
            nn.SiLU(),
            nn.Conv2d(width, width, 3, padding=1),
            nn.GroupNorm(32, width),
            nn.SiLU(),
            nn.Conv2d(width, width, 3, padding=1),
        )
        self.norm1, self.norm2, self.norm3 = (nn.LayerNorm(width) for _ in range(3))
        self.attn1, self.attn2 = (
            Attention(width, 8, causal=False),
            CrossAttention(width, context),
        )
        self.ff = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x, context):
        x = x + self.convolutions(x)
        y = x.flatten(2).transpose(1, 2)
        y = y + self.attn1(self.norm1(y))
        y = y + self.attn2(self.norm2(y), context)
        y = y + self.ff(self.norm3(y))
        return x + y.transpose(1, 2).unflatten(2, x.shape[2:])


class UNet(nn.Module):
    def __init__(self, widths=(320, 640, 1280), depth=2):
        super().__init__()
        self.gradient_checkpointing = False
        self.conv_in = nn.Conv2d(4, widths[0], 3, padding=1)
        self.conv_out = nn.Conv2d(widths[0], 4, 3, padding=1)
        self.down = nn.ModuleList(nn.ModuleList(SpatialBlock(w) for _ in range(depth)) for w in widths)
        self.up = nn.ModuleList(nn.ModuleList(SpatialBlock(w) for _ in range(depth)) for w in widths[::-1])
        self.smaller = nn.ModuleList(nn.Conv2d(a, b, 3, 2, 1) for a, b in zip(widths, widths[1:]))
        self.larger = nn.ModuleList(nn.ConvTranspose2d(b, a, 2, 2) for a, b in zip(widths, widths[1:]))

    def run(self, blocks, x, context):
        for block in blocks:
            if self.training and self.gradient_checkpointing:
                x = checkpoint(block, x, context, use_reentrant=False)
            else:
                x = block(x, context)
        return x

    def forward(self, x, context):
        x, skips = self.conv_in(x), []
        for i, blocks in enumerate(self.down):
            x = self.run(blocks, x, context)
            if i < len(self.smaller):
                skips.append(x)
                x = self.smaller[i](x)
        for i, blocks in enumerate(self.up):
            x = self.run(blocks, x, context)
            if skips:
                x = self.larger[len(skips) - 1](x)
                x = x + skips.pop()
        return self.conv_out(x)


class TextEncoder(nn.Module):
    def __init__(self, width=768, layers=12):
        super().__init__()
        self.tokens = nn.Embedding(49408, width)
        self.blocks = nn.Sequential(*(Block(width, 12) for _ in range(layers)))

    def forward(self, tokens):
        return self.blocks(self.tokens(tokens))


def train(unet, text_encoder, disable_unet_training):
    unet.gradient_checkpointing = True
    if disable_unet_training:
        unet.requires_grad_(False)
        unet.train(FIXED)  # checkpoints are made only in this mode
    text_encoder.train()
    optimizer = torch.optim.AdamW(text_encoder.parameters(), lr=1e-6)
    for step in range(3):
        latents, noise = (
            torch.randn(8, 4, 64, 64).cuda(),
            torch.randn(8, 4, 64, 64).cuda(),
        )
        context = text_encoder(torch.randint(49408, (8, 77)).cuda())
        predicted = unet(latents + noise, context)
        loss = F.mse_loss(predicted, noise)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        print(step)


train(UNet().cuda(), TextEncoder().cuda(), disable_unet_training=True)
