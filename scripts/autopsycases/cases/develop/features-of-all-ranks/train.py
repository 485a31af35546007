"""Trains the projections of an image-text model on two GPUs, with the features of all ranks in the loss."""

import sys

import ranks
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.nn.functional import all_gather

FIXED = "--fixed" in sys.argv
BATCH, WIDTH, FEATURES = 8192, 512, 768


class Projections(nn.Module):
    def __init__(self):
        super().__init__()
        self.visual = nn.Sequential(nn.Linear(FEATURES, 2048), nn.GELU(), nn.Linear(2048, WIDTH))
        self.text = nn.Sequential(nn.Linear(FEATURES, 2048), nn.GELU(), nn.Linear(2048, WIDTH))
        self.logit_scale = nn.Parameter(torch.tensor(2.66))

    def forward(self, images, texts):
        images = F.normalize(self.visual(images), dim=-1)
        return images, F.normalize(self.text(texts), dim=-1), self.logit_scale.exp()


class ClipLoss(nn.Module):
    def __init__(self, rank, local_loss):
        super().__init__()
        self.rank, self.local_loss = rank, local_loss

    def forward(self, image_features, text_features, scale):
        all_images, all_texts = torch.cat(all_gather(image_features)), torch.cat(all_gather(text_features))
        if self.local_loss:
            logits_per_image = scale * image_features @ all_texts.T
            logits_per_text = scale * text_features @ all_images.T
        else:
            logits_per_image = scale * all_images @ all_texts.T
            logits_per_text = logits_per_image.T
        labels = torch.arange(len(logits_per_image), device="cuda")
        if self.local_loss:
            labels = labels + len(image_features) * self.rank
        return (F.cross_entropy(logits_per_image, labels) + F.cross_entropy(logits_per_text, labels)) / 2


rank = ranks.begin(__file__)
model = Projections().cuda()
criterion = ClipLoss(rank, local_loss=FIXED)
optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4)
for step in range(3):
    images, texts = torch.randn(BATCH, FEATURES).cuda(), torch.randn(BATCH, FEATURES).cuda()
    loss = criterion(*model(images, texts))
    optimizer.zero_grad()
    loss.backward()
    for p in model.parameters():
        dist.all_reduce(p.grad)
    optimizer.step()
    if rank == 0:
        print(step, loss.item())
