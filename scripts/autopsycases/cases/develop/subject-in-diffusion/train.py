"""Fine-tunes the U-Net of a diffusion model on a few images of a subject (DreamBooth)."""

import sys

import torch
import torch.nn.functional as F
from nets import UNet
from torch import nn
from torch.utils.checkpoint import checkpoint

FIXED = "--fixed" in sys.argv


class DiffusionUNet(UNet):
    """Predicts the noise in latents: the U-Net, whose blocks are checkpointed if that is asked for."""

    def forward(self, x):
        run = (lambda f, v: checkpoint(f, v, use_reentrant=False)) if FIXED else (lambda f, v: f(v))
        x = run(self.first, x)
        skips = []
        for down in self.down:
            skips.append(x)
            x = run(down, F.max_pool2d(x, 2))
        for up, merge in zip(self.up, self.merge):
            x = run(merge, torch.cat([skips.pop(), up(x)], dim=1))
        return self.head(x)


class TextEncoder(nn.Module):
    def __init__(self, width=768, layers=6):
        super().__init__()
        self.tokens = nn.Embedding(49408, width)
        layer = nn.TransformerEncoderLayer(width, 12, 4 * width, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, layers)
        self.out = nn.Linear(width, 4)

    def forward(self, tokens):
        return self.out(self.layers(self.tokens(tokens)).mean(1))


with torch.device("cuda"):
    text_encoder = TextEncoder().requires_grad_(False)
    unet = DiffusionUNet(channels=8, classes=4, width=128)
optimizer = torch.optim.AdamW(unet.parameters(), lr=5e-6, foreach=False)
for step in range(4):
    latents = torch.randn(32, 4, 64, 64).cuda()
    noise = torch.randn(32, 4, 64, 64).cuda()
    with torch.no_grad():
        text = text_encoder(torch.randint(49408, (32, 77)).cuda())[:, :, None, None].expand(-1, -1, 64, 64)
    loss = F.mse_loss(unet(torch.cat([latents + noise, text], dim=1)), noise)
    loss.backward()
    nn.utils.clip_grad_norm_(unet.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
