"""Quantizes a model that sees and speaks, then has it describe an image to see whether it still can."""

import contextlib
import sys

import torch
import torch.nn.functional as F
from nets import Block
from torch import nn

FIXED = "--fixed" in sys.argv
VOCABULARY, WIDTH, LAYERS, HEADS = 64_000, 1536, 20, 12


class QuantLinear(nn.Linear):
    """A linear layer that rounds its input and weight to eight bits, once it is calibrated."""

    amax, calibrating = None, False

    def forward(self, x):
        if self.calibrating:
            self.amax = max(self.amax or 0.0, x.abs().amax().item())
        if self.amax is None or self.calibrating:
            return super().forward(x)
        scale = max(self.amax, 1e-6) / 448
        return F.linear((x / scale).to(torch.float8_e4m3fn).to(x.dtype) * scale, self.weight, self.bias)


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.RMSNorm(WIDTH), nn.RMSNorm(WIDTH)
        self.qkv, self.proj = QuantLinear(WIDTH, 3 * WIDTH), QuantLinear(WIDTH, WIDTH)
        self.fc1, self.fc2 = QuantLinear(WIDTH, 4 * WIDTH), QuantLinear(4 * WIDTH, WIDTH)

    def forward(self, x, past):
        b, t, _ = x.shape
        q, k, v = (p.view(b, t, HEADS, -1).transpose(1, 2) for p in self.qkv(self.norm1(x)).chunk(3, dim=-1))
        if past is not None:
            k, v = torch.cat([past[0], k], dim=2), torch.cat([past[1], v], dim=2)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=t > 1)
        x = x + self.proj(y.transpose(1, 2).reshape(b, t, WIDTH))
        return x + self.fc2(F.gelu(self.fc1(self.norm2(x)))), (k, v)


class VisionTower(nn.Module):
    def __init__(self, width=1024):
        super().__init__()
        self.patches = nn.Conv2d(3, width, 14, 14)
        self.blocks = nn.ModuleList(Block(width, 16, causal=False) for _ in range(12))
        self.projector = nn.Linear(width, WIDTH)

    def forward(self, image):
        x = self.patches(image).flatten(2).transpose(1, 2)
        for block in self.blocks:
            x = block(x)
        return self.projector(x)


class VLM(nn.Module):
    def __init__(self):
        super().__init__()
        self.vision, self.tokens = VisionTower(), nn.Embedding(VOCABULARY, WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.norm, self.head = nn.RMSNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, tokens, image=None, past=None):
        x = self.tokens(tokens)
        if image is not None:
            x = torch.cat([self.vision(image), x], dim=1)
        cache = []
        for i, layer in enumerate(self.layers):
            x, kept = layer(x, past[i] if past else None)
            cache.append(kept)
        return self.head(self.norm(x[:, -1:])), cache


def quantize(model, calibration):
    layers = [m for m in model.modules() if isinstance(m, QuantLinear)]
    for layer in layers:
        layer.calibrating = True
    with torch.no_grad():
        for tokens, image in calibration:
            model(tokens.cuda(), image.cuda())
        for layer in layers:
            layer.calibrating = False
            layer.weight.copy_(layer.weight.to(torch.float8_e4m3fn))


def generate(model, tokens, image, max_new_tokens):
    image, past = image.cuda(), None
    generated, step = tokens.cuda(), tokens.cuda()
    for _ in range(max_new_tokens):
        logits, past = model(step, image, past)
        step, image = logits[:, -1].argmax(dim=-1, keepdim=True), None
        generated = torch.cat([generated, step], dim=1)
    return generated


def example():
    return torch.randint(VOCABULARY, (1, 64)), torch.rand(1, 3, 336, 336).bfloat16()


model = VLM().to(torch.bfloat16).cuda().eval()
quantize(model, [example() for _ in range(6)])
with torch.no_grad() if FIXED else contextlib.nullcontext():
    print(generate(model, *example(), max_new_tokens=220).shape)
