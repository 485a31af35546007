"""Trains a U-Net on latents and text embeddings that were computed before the first step."""

import sys

import torch
import torch.nn.functional as F
from nets import Encoder, UNet

FIXED = "--fixed" in sys.argv

vae = UNet(channels=3, classes=4, width=64).requires_grad_(False).cuda()
text_encoder = Encoder(width=1024, layers=24, heads=16).requires_grad_(False).cuda()
unet = UNet(channels=4, classes=4, width=96).cuda()
cache = []
with torch.no_grad():
    for image in range(24):
        pixels, tokens = torch.rand(1, 3, 256, 256).cuda(), torch.randint(30522, (1, 77)).cuda()
        latents = F.interpolate(vae(pixels), scale_factor=0.25)
        cache.append((latents.cpu(), text_encoder.features(tokens).mean(1).cpu()))
if FIXED:
    vae.to("cpu")
    text_encoder.to("cpu")
    torch.cuda.empty_cache()

optimizer = torch.optim.AdamW(unet.parameters(), lr=1e-4)
for step in range(6):
    batch = [cache[i % len(cache)] for i in range(4 * step, 4 * step + 4)]
    latents = torch.cat([x for x, _ in batch]).cuda()
    text = torch.cat([x for _, x in batch]).cuda()
    noise = torch.randn_like(latents)
    loss = F.mse_loss(unet(latents + noise + text.mean()), noise)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step)
