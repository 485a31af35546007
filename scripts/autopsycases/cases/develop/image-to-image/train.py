"""Changes a photo with a text: its latents are noised and then denoised again, at the photo's own size."""

import sys

import torch
import torch.nn.functional as F
from torch import nn

FIXED = "--fixed" in sys.argv
HEADS, SLICE = 8, 1


class CrossAttention(nn.Module):
    def __init__(self, width, context=None):
        super().__init__()
        self.to_q = nn.Linear(width, width, bias=False)
        self.to_k = nn.Linear(context or width, width, bias=False)
        self.to_v = nn.Linear(context or width, width, bias=False)
        self.to_out = nn.Linear(width, width)

    def attend(self, q, k, v):
        scores = torch.einsum("b h i d, b h j d -> b h i j", q, k) * q.shape[-1] ** -0.5
        return torch.einsum("b h i j, b h j d -> b h i d", scores.softmax(dim=-1), v)

    def forward(self, x, context=None):
        context = x if context is None else context
        q, k, v = self.to_q(x), self.to_k(context), self.to_v(context)
        q, k, v = (t.unflatten(2, (HEADS, -1)).transpose(1, 2) for t in (q, k, v))
        if FIXED:
            parts = [
                self.attend(*part) for part in zip(q.split(SLICE, 1), k.split(SLICE, 1), v.split(SLICE, 1))
            ]
            out = torch.cat(parts, dim=1)
        else:
            out = self.attend(q, k, v)
        return self.to_out(out.transpose(1, 2).flatten(2))


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.conv = nn.Sequential(nn.GroupNorm(32, width), nn.SiLU(), nn.Conv2d(width, width, 3, padding=1))
        self.norm1, self.norm2, self.norm3 = (nn.LayerNorm(width) for _ in range(3))
        self.self_attention, self.cross = CrossAttention(width), CrossAttention(width, 768)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x, text):
        x = x + self.conv(x)
        b, c, h, w = x.shape
        t = x.flatten(2).transpose(1, 2)
        t = t + self.self_attention(self.norm1(t))
        t = t + self.cross(self.norm2(t), text)
        t = t + self.mlp(self.norm3(t))
        return t.transpose(1, 2).reshape(b, c, h, w)


class Denoiser(nn.Module):
    def __init__(self):
        super().__init__()
        self.into, self.out = nn.Conv2d(4, 320, 3, padding=1), nn.Conv2d(320, 4, 3, padding=1)
        self.down = nn.Conv2d(320, 640, 3, 2, 1)
        self.high, self.low = Block(320), nn.ModuleList(Block(640) for _ in range(4))
        self.up = nn.Conv2d(640, 320, 3, padding=1)
        self.last = Block(320)

    def forward(self, x, text):
        skip = self.high(self.into(x), text)
        x = self.down(skip)
        for block in self.low:
            x = block(x, text)
        return self.out(self.last(skip + self.up(F.interpolate(x, scale_factor=2)), text))


@torch.no_grad()
def image_to_image(model, latents, text, strength=0.75, steps=50):
    latents = latents + torch.randn_like(latents)
    for _ in range(int(strength * steps)):
        noise = model(torch.cat([latents] * 2), text)
        uncond, cond = noise.chunk(2)
        latents = latents - 0.02 * (uncond + 7.5 * (cond - uncond))
    return latents


model = Denoiser().cuda().eval()
text = torch.randn(2, 77, 768).cuda()
photo = torch.rand(1, 4, 96, 128).cuda()  # of 1024 by 768 pixels
print(image_to_image(model, photo, text).shape)
