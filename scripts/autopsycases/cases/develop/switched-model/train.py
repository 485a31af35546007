"""Serves an inpainting model, and switches to another one while it runs."""

import gc
import sys

import torch
from nets import UNet

FIXED = "--fixed" in sys.argv
WIDTHS = {"sd1.5": 256, "sd2": 272}


class ModelManager:
    def __init__(self, name):
        self.name, self.model = name, self.init_model(name)

    def init_model(self, name):
        return UNet(channels=9, classes=4, width=WIDTHS[name]).cuda().eval()

    def __call__(self, image, mask):
        with torch.no_grad():
            for _ in range(20):
                image = self.model(torch.cat([image, mask, image], dim=1))
        return image

    def switch(self, name):
        if FIXED:
            del self.model
            gc.collect()
            torch.cuda.empty_cache()
        self.model = self.init_model(name)
        self.name = name


manager = ModelManager("sd1.5")
for name in ("sd1.5", "sd2", "sd1.5"):
    if name != manager.name:
        manager.switch(name)
    for _ in range(3):
        latent, mask = torch.randn(1, 4, 64, 64).cuda(), torch.zeros(1, 1, 64, 64).cuda()
        print(name, manager(latent, mask).abs().mean().item())
