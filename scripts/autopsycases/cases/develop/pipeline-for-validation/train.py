"""Trains low-rank adapters of a U-Net and, at times, draws samples with a pipeline."""

import copy
import sys

import torch
import torch.nn.functional as F
from nets import Encoder, UNet
from torch import nn

FIXED = "--fixed" in sys.argv


class Adapter(nn.Module):
    """A 1x1 convolution of low rank beside a frozen convolution."""

    def __init__(self, conv, rank=4):
        super().__init__()
        self.conv = conv
        self.down = nn.Conv2d(conv.in_channels, rank, 1, bias=False)
        self.up = nn.Conv2d(rank, conv.out_channels, 1, bias=False)

    def forward(self, x):
        return self.conv(x) + self.up(self.down(x))


def adapt(module):
    for name, child in module.named_children():
        if isinstance(child, nn.Conv2d) and child.in_channels > 64:
            setattr(module, name, Adapter(child))
        else:
            adapt(child)


hub = {
    "unet": UNet(channels=4, classes=4, width=160),
    "text_encoder": Encoder(layers=12),
    "vae": UNet(channels=3, classes=4, width=48),
}


class Pipeline:
    """Text encoder, U-Net and VAE that make images of prompts."""

    def __init__(self, unet, text_encoder, vae):
        self.unet, self.text_encoder, self.vae = unet, text_encoder, vae

    @classmethod
    def from_pretrained(cls, hub, **have):
        return cls(**{name: have.get(name) or copy.deepcopy(m) for name, m in hub.items()})

    def to(self, device):
        for model in (self.unet, self.text_encoder, self.vae):
            model.to(device)
        return self

    @torch.no_grad()
    def __call__(self, prompt, steps=4):
        condition = self.text_encoder.features(prompt).mean()
        latents = torch.randn(1, 4, 64, 64, device="cuda")
        for _ in range(steps):
            latents = latents - 0.1 * self.unet(latents + condition)
        return self.vae(F.interpolate(latents[:, :3], scale_factor=8))


models = {name: copy.deepcopy(m).requires_grad_(False).cuda() for name, m in hub.items()}
unet = models["unet"]
adapt(unet)
unet.cuda()
optimizer = torch.optim.AdamW([p for p in unet.parameters() if p.requires_grad], lr=1e-4)


def log_validation():
    have = models if FIXED else {}
    pipeline = Pipeline.from_pretrained(hub, **have).to("cuda")
    return [pipeline(torch.randint(30522, (1, 77)).cuda()).cpu() for _ in range(4)]


for step in range(6):
    latents, noise = torch.randn(2, 4, 64, 64).cuda(), torch.randn(2, 4, 64, 64).cuda()
    with torch.no_grad():
        condition = models["text_encoder"].features(torch.randint(30522, (2, 77)).cuda()).mean()
    loss = F.mse_loss(unet(latents + condition), noise)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step == 3:
        print(len(log_validation()))
