"""Trains a diffusion transformer on cached latents; the first run encodes prompts, too."""

import os
import sys
import tempfile

import torch
import torch.nn.functional as F
from nets import Block
from torch import nn

FIXED = "--fixed" in sys.argv
BATCH, TOKENS, WIDTH, CAPTION = 12, 1024, 576, 120


class T5(nn.Module):
    def __init__(self, width=1536, layers=16):
        super().__init__()
        self.embed = nn.Embedding(32_128, width)
        self.blocks = nn.Sequential(*(Block(width, 24, causal=False) for _ in range(layers)))

    def forward(self, tokens):
        return self.blocks(self.embed(tokens))


class PixArt(nn.Module):
    def __init__(self, caption, layers=8):
        super().__init__()
        self.patches, self.captions = nn.Linear(16, WIDTH), nn.Linear(caption, WIDTH)
        self.blocks = nn.ModuleList(Block(WIDTH, 8, causal=False) for _ in range(layers))
        self.out = nn.Linear(WIDTH, 16)

    def forward(self, x, y):
        x = torch.cat([self.patches(x), self.captions(y)], dim=1)
        for block in self.blocks:
            x = block(x)
        return self.out(x[:, :TOKENS])


def embed_validation_prompts(text_encoder, prompts, folder):
    with torch.no_grad():
        for i in range(prompts):
            embedding = text_encoder(torch.randint(32_128, (1, CAPTION)).cuda())
            torch.save({"caption_embeds": embedding.cpu()}, os.path.join(folder, f"{i}.pth"))


with tempfile.TemporaryDirectory() as folder:
    if not os.path.exists(os.path.join(folder, "0.pth")):
        text_encoder = T5().cuda().eval()
        embed_validation_prompts(text_encoder, 4, folder)
        if FIXED:
            del text_encoder
    model = PixArt(1536).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5)
    for step in range(4):
        latents, captions = torch.randn(BATCH, TOKENS, 16).cuda(), torch.randn(BATCH, CAPTION, 1536).cuda()
        noise = torch.randn_like(latents)
        loss = F.mse_loss(model(latents + noise, captions), noise)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(step, loss.item())
