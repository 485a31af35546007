"""Trains a tower for images and one for texts to agree."""

import sys

import numpy as np
import torch
import torch.nn.functional as F
from nets import Block
from torch import nn
from torch.utils.checkpoint import checkpoint

FIXED = "--fixed" in sys.argv


class Transformer(nn.Module):
    def __init__(self, width, layers, heads, causal):
        super().__init__()
        self.resblocks = nn.ModuleList(Block(width, heads, causal=causal) for _ in range(layers))
        self.grad_checkpointing = False

    def forward(self, x):
        for r in self.resblocks:
            if self.grad_checkpointing and torch.is_grad_enabled():
                x = checkpoint(r, x, use_reentrant=False)
            else:
                x = r(x)
        return x


class VisualTransformer(nn.Module):
    def __init__(self, image_size=224, patch_size=16, width=768, layers=12, heads=12, output_dim=512):
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, patch_size, patch_size, bias=False)
        self.positional_embedding = nn.Parameter(torch.zeros((image_size // patch_size) ** 2, width))
        self.transformer = Transformer(width, layers, heads, causal=False)
        self.ln_post, self.proj = nn.LayerNorm(width), nn.Linear(width, output_dim, bias=False)

    def forward(self, x):
        x = self.conv1(x).flatten(2).transpose(1, 2) + self.positional_embedding
        return self.proj(self.ln_post(self.transformer(x)).mean(dim=1))


class CLIP(nn.Module):
    def __init__(self, vocab_size=49_408, context_length=77, width=512, layers=12, heads=8):
        super().__init__()
        self.visual = VisualTransformer()
        self.token_embedding = nn.Embedding(vocab_size, width)
        self.positional_embedding = nn.Parameter(torch.zeros(context_length, width))
        self.transformer = Transformer(width, layers, heads, causal=True)
        self.ln_final, self.text_projection = nn.LayerNorm(width), nn.Linear(width, 512, bias=False)
        self.logit_scale = nn.Parameter(torch.ones([]) * np.log(1 / 0.07))

    def set_grad_checkpointing(self, enable=True):
        self.visual.transformer.grad_checkpointing = self.transformer.grad_checkpointing = enable

    def encode_image(self, image):
        return F.normalize(self.visual(image), dim=-1)

    def encode_text(self, text):
        x = self.transformer(self.token_embedding(text) + self.positional_embedding)
        return F.normalize(self.text_projection(self.ln_final(x)[:, -1]), dim=-1)

    def forward(self, image, text):
        return self.encode_image(image), self.encode_text(text), self.logit_scale.exp()


class ClipLoss(nn.Module):
    def forward(self, image_features, text_features, logit_scale):
        logits = logit_scale * image_features @ text_features.T
        labels = torch.arange(len(logits), device=logits.device)
        return (F.cross_entropy(logits, labels) + F.cross_entropy(logits.T, labels)) / 2


def train_one_epoch(model, loss, scaler, optimizer, steps, batch_size):
    for i in range(steps):
        images = torch.rand(batch_size, 3, 224, 224).cuda(non_blocking=True)
        texts = torch.randint(49_408, (batch_size, 77)).cuda(non_blocking=True)
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=torch.float16):
            total_loss = loss(*model(images, texts))
        scaler.scale(total_loss).backward()
        scaler.step(optimizer)
        scaler.update()
        print(i, total_loss.item())


model = CLIP().cuda()
if FIXED:
    model.set_grad_checkpointing()
optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4, weight_decay=0.2)
train_one_epoch(model, ClipLoss(), torch.amp.GradScaler("cuda"), optimizer, steps=3, batch_size=128)
