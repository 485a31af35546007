"""Trains an autoencoder of images whose codes are the signs of its features (lookup-free quantization)."""

import sys

import torch
import torch.nn.functional as F
from torch import nn

FIXED = "--fixed" in sys.argv
BATCH, SIZE, BITS = 32, 128, 16
FRACTION = 0.1 if FIXED else 1.0


def stage(a, b, stride):
    return nn.Sequential(nn.Conv2d(a, b, 3, stride, 1), nn.GroupNorm(8, b), nn.SiLU())


class LFQ(nn.Module):
    def __init__(self):
        super().__init__()
        codes = torch.arange(2**BITS)[:, None] >> torch.arange(BITS) & 1
        self.register_buffer("codebook", codes.float() * 2 - 1)

    def forward(self, x):
        quantized = x + (torch.where(x > 0, 1.0, -1.0) - x).detach()
        rows = x.flatten(0, 1)
        if FRACTION < 1:
            rows = rows[torch.randperm(len(rows), device=x.device)[: int(FRACTION * len(rows))]]
        distance = -2 * rows @ self.codebook.t()
        probs = (-distance * 100).softmax(dim=-1)
        per_sample = -(probs * probs.clamp(min=1e-5).log()).sum(dim=-1).mean()
        average = probs.mean(dim=0)
        return quantized, per_sample + (average * average.clamp(min=1e-5).log()).sum()


class Autoencoder(nn.Module):
    def __init__(self, width=128):
        super().__init__()
        self.encoder = nn.Sequential(
            stage(3, width, 2), stage(width, width, 2), stage(width, width, 2), nn.Conv2d(width, BITS, 1)
        )
        self.quantizer = LFQ()
        self.decoder = nn.Sequential(
            nn.Conv2d(BITS, width, 1),
            *(nn.Sequential(nn.Upsample(scale_factor=2), stage(width, width, 1)) for _ in range(3)),
            nn.Conv2d(width, 3, 1),
        )

    def forward(self, images):
        x = self.encoder(images)
        quantized, entropy = self.quantizer(x.flatten(2).transpose(1, 2))
        return self.decoder(quantized.transpose(1, 2).view_as(x)), entropy


model = Autoencoder().cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
for step in range(4):
    images = torch.rand(BATCH, 3, SIZE, SIZE).cuda()
    out, entropy = model(images)
    loss = F.mse_loss(out, images) + 0.1 * entropy
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())
