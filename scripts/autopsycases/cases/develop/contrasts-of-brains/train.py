"""Harmonises the contrasts of magnetic resonance images of a brain, slice by slice, and fuses the views."""

import sys

import torch
from nets import UNet
from torch import nn

FIXED = "--fixed" in sys.argv


class Harmoniser:
    """An encoder of anatomy, a decoder for a target contrast, and a network that fuses three views."""

    def __init__(self, device="cuda"):
        self.device = device
        self.anatomy = UNet(channels=1, classes=4, width=16).to(device)
        self.decoder = UNet(channels=6, classes=1, width=32).to(device)
        self.fusion = nn.Sequential(
            nn.Conv3d(3, 16, 3, padding=1), nn.LeakyReLU(0.1),
            nn.Conv3d(16, 16, 3, padding=1), nn.LeakyReLU(0.1),
            nn.Conv3d(16, 1, 3, padding=1),
        ).to(device)

    def harmonize(self, volume, target, batch=4):
        """Returns the volume with the contrast of target: [slices, 1, height, width]."""
        results = []
        for part in volume.split(batch):
            beta = torch.softmax(self.anatomy(part.to(self.device)), dim=1)
            style = target.to(self.device)[None, :, None, None].expand(len(part), -1, *part.shape[2:])
            results.append(self.decoder(torch.cat([beta, style], dim=1)).detach().cpu())
        return torch.cat(results)

    def combine_images(self, views):
        """Returns one volume from three that were harmonised along different axes."""
        volumes = torch.stack([v.squeeze(1) for v in views]).unsqueeze(0).to(self.device)
        return self.fusion(volumes).cpu()


def run():
    harmoniser = Harmoniser()
    target = torch.rand(2)
    views = [harmoniser.harmonize(torch.rand(16, 1, 224, 224), target) for _ in range(3)]
    whole = [v.repeat(12, 1, 1, 1) for v in views]
    print(harmoniser.combine_images(whole).shape)


if FIXED:
    with torch.inference_mode():
        run()
else:
    run()
