"""Tunes a large U-Net on captions and latents that are encoded before the training begins."""

import functools
import gc
import sys

import torch
import torch.nn.functional as F
from nets import Encoder, UNet

FIXED = "--fixed" in sys.argv


def encode_prompt(tokens, text_encoders):
    with torch.no_grad():
        return torch.cat([encoder.features(tokens.cuda()) for encoder in text_encoders], dim=-1).cpu()


def compute_vae_encodings(images, vae):
    with torch.no_grad():
        return F.interpolate(vae(images.cuda()), scale_factor=0.125).cpu()


def data_set(size, compute_embeddings_fn, compute_vae_encodings_fn):
    precomputed = []
    for _ in range(size):
        embeddings = compute_embeddings_fn(torch.randint(49_408, (1, 77)))
        precomputed.append((embeddings, compute_vae_encodings_fn(torch.rand(1, 3, 512, 512))))
    return precomputed


def main():
    vocabulary = 49_408
    text_encoder_one = Encoder(vocabulary, width=768, layers=12, heads=12, context=77)
    text_encoder_two = Encoder(vocabulary, width=1280, layers=32, heads=20, context=77)
    vae = UNet(channels=3, classes=4, width=64)
    unet = UNet(channels=4, classes=4, width=160)
    for frozen in (vae, text_encoder_one, text_encoder_two):
        frozen.requires_grad_(False)
    vae.to("cuda", dtype=torch.float32)
    text_encoder_one.to("cuda", dtype=torch.float16)
    text_encoder_two.to("cuda", dtype=torch.float16)
    unet.to("cuda").train()
    optimizer = torch.optim.AdamW(unet.parameters(), lr=1e-5)

    text_encoders = [text_encoder_one, text_encoder_two]
    compute_embeddings_fn = functools.partial(encode_prompt, text_encoders=text_encoders)
    compute_vae_encodings_fn = functools.partial(compute_vae_encodings, vae=vae)
    train_dataset = data_set(16, compute_embeddings_fn, compute_vae_encodings_fn)
    del text_encoders, vae
    if FIXED:
        del compute_embeddings_fn, compute_vae_encodings_fn, text_encoder_one, text_encoder_two, frozen
    gc.collect()
    torch.cuda.empty_cache()

    for step in range(5):
        batch = [train_dataset[(4 * step + i) % len(train_dataset)] for i in range(4)]
        prompt_embeds = torch.cat([x for x, _ in batch]).cuda().float()
        latents = torch.cat([x for _, x in batch]).cuda()
        noise = torch.randn_like(latents)
        timesteps = torch.rand(len(latents), 1, 1, 1).cuda()
        noisy_latents = (1 - timesteps) * latents + timesteps * noise
        condition = prompt_embeds.mean(dim=(1, 2)).view(-1, 1, 1, 1)
        with torch.autocast("cuda", dtype=torch.float16):
            model_pred = unet(noisy_latents + condition)
        loss = F.mse_loss(model_pred.float(), noise)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


main()
