"""Fine-tunes a latent diffusion model on a subject; what the frozen encoders say of all images is cached."""

import sys

import torch
import torch.nn.functional as F
from nets import Encoder, UNet
from torch import nn

FIXED = "--fixed" in sys.argv


class DiagonalGaussian:
    def __init__(self, parameters):
        self.parameters = parameters
        self.mean, self.logvar = parameters.chunk(2, dim=1)
        self.logvar = self.logvar.clamp(-30.0, 20.0)
        self.std, self.var = torch.exp(0.5 * self.logvar), torch.exp(self.logvar)

    def sample(self):
        return self.mean + self.std * torch.randn_like(self.std)


class AutoencoderKL(nn.Module):
    def __init__(self, widths=(128, 256, 512, 512)):
        super().__init__()
        layers, channels = [nn.Conv2d(3, widths[0], 3, padding=1)], widths[0]
        for i, width in enumerate(widths):
            layers += [nn.GroupNorm(32, channels), nn.SiLU(), nn.Conv2d(channels, width, 3, padding=1)]
            layers += [nn.Conv2d(width, width, 3, 2, 1)] if i < 3 else []
            channels = width
        self.encoder = nn.Sequential(*layers, nn.Conv2d(channels, 8, 3, padding=1))

    def encode(self, images):
        return DiagonalGaussian(self.encoder(images))


class TextEncoder(Encoder):
    def forward(self, tokens):
        return self.features(tokens)


class ConditionalUNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.unet, self.text = UNet(channels=4, classes=4, width=64), nn.Linear(768, 4)

    def forward(self, latents, states):
        return self.unet(latents + self.text(states).mean(dim=1)[:, :, None, None])


class DreamBoothDataset:
    """Two pairs at a time, each of an image of the subject and one of its class."""

    def __init__(self, class_images):
        self.class_images = class_images

    def __iter__(self):
        for _ in range(self.class_images // 2):
            yield {"pixel_values": torch.rand(4, 3, 256, 256), "input_ids": torch.randint(30_000, (4, 77))}


def cache(loader, vae, text_encoder):
    latents_cache, text_encoder_cache = [], []
    for batch in loader:
        with torch.no_grad():
            pixels = batch["pixel_values"].to("cuda", dtype=torch.float16)
            latents_cache.append(vae.encode(pixels))
            text_encoder_cache.append(text_encoder(batch["input_ids"].to("cuda")))
    return zip(latents_cache, text_encoder_cache)


def encode(loader, vae, text_encoder):
    for batch in loader:
        with torch.no_grad():
            latents = vae.encode(batch["pixel_values"].to("cuda", dtype=torch.float16))
            states = text_encoder(batch["input_ids"].to("cuda"))
        yield latents, states


def main():
    vae = AutoencoderKL().requires_grad_(False).to("cuda", dtype=torch.float16)
    text_encoder = TextEncoder(vocabulary=49_408, context=77).requires_grad_(False).to("cuda", torch.float16)
    unet = ConditionalUNet().to("cuda")
    optimizer = torch.optim.AdamW(unet.parameters(), lr=5e-6)
    loader = DreamBoothDataset(class_images=2800)
    data = (encode if FIXED else cache)(loader, vae, text_encoder)
    for step, (distribution, states) in enumerate(data):
        latents = distribution.sample().float() * 0.18215
        noise = torch.randn_like(latents)
        loss = F.mse_loss(unet(latents + noise, states.float()), noise)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if step == 8:
            break
    print(loss.item())


main()
