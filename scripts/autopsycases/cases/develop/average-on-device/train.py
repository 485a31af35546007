"""Trains a diffusion model and keeps a running average of its weights, with which it validates."""

import sys

import torch
import torch.nn.functional as F
from nets import UNet
from torch import nn

FIXED = "--fixed" in sys.argv


class LitEma(nn.Module):
    """A running average of a model's weights, as buffers."""

    def __init__(self, model, decay=0.9999):
        super().__init__()
        self.decay, self.names, self.collected = decay, {}, []
        device = "cpu" if FIXED else "cuda"
        for name, p in model.named_parameters():
            self.names[name] = name.replace(".", "")
            self.register_buffer(self.names[name], p.clone().detach().data.to(device))

    @torch.no_grad()
    def forward(self, model):
        for name, p in model.named_parameters():
            average = getattr(self, self.names[name])
            average.sub_((1 - self.decay) * (average - p.to(average.device)))

    def store(self, parameters):
        self.collected = [p.detach().to("cpu") if FIXED else p.clone() for p in parameters]

    def copy_to(self, model):
        for name, p in model.named_parameters():
            p.data.copy_(getattr(self, self.names[name]).data)

    def restore(self, parameters):
        for kept, p in zip(self.collected, parameters):
            p.data.copy_(kept.data)


model = UNet(channels=4, classes=4, width=128).cuda()
ema = LitEma(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
for step in range(6):
    latents, noise = torch.randn(4, 4, 64, 64).cuda(), torch.randn(4, 4, 64, 64).cuda()
    loss = F.mse_loss(model(latents), noise)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    ema(model)
    if step % 3 == 2:
        ema.store(model.parameters())
        ema.copy_to(model)
        with torch.no_grad():
            print(F.mse_loss(model(latents), noise).item())
        ema.restore(model.parameters())
