"""Trains a detector whose encoder attends between all places of the image with nn.MultiheadAttention."""

import sys

import torch
import torch.nn.functional as F
from torch import nn

FIXED = "--fixed" in sys.argv
SIZE, BATCH, WIDTH, QUERIES, CLASSES = 640, 4, 256, 300, 80


class Layer(nn.Module):
    def __init__(self, cross=False):
        super().__init__()
        self.self_attn = nn.MultiheadAttention(WIDTH, 8, dropout=0.1, batch_first=True)
        self.cross_attn = nn.MultiheadAttention(WIDTH, 8, batch_first=True) if cross else None
        self.ffn = nn.Sequential(nn.Linear(WIDTH, 1024), nn.GELU(), nn.Linear(1024, WIDTH))
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(3))

    def forward(self, x, memory=None):
        y, _ = self.self_attn(x, x, x, need_weights=not FIXED)
        x = self.norms[0](x + y)
        if self.cross_attn is not None:
            y, _ = self.cross_attn(x, memory, memory, need_weights=not FIXED)
            x = self.norms[1](x + y)
        return self.norms[2](x + self.ffn(x))


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 64, 7, 4, 3), nn.BatchNorm2d(64), nn.ReLU(inplace=True), nn.Conv2d(64, WIDTH, 4, 4)
        )
        self.encoder = nn.ModuleList(Layer() for _ in range(6))
        self.decoder = nn.ModuleList(Layer(cross=True) for _ in range(6))
        self.queries = nn.Parameter(torch.randn(1, QUERIES, WIDTH))
        self.boxes, self.classes = nn.Linear(WIDTH, 4), nn.Linear(WIDTH, CLASSES)

    def forward(self, images):
        memory = self.stem(images).flatten(2).transpose(1, 2)
        for layer in self.encoder:
            memory = layer(memory)
        x = self.queries.expand(len(images), -1, -1)
        for layer in self.decoder:
            x = layer(x, memory)
        return self.boxes(x).sigmoid(), self.classes(x)


model = Detector().cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
for step in range(4):
    images = torch.rand(BATCH, 3, SIZE, SIZE).cuda()
    boxes = torch.rand(BATCH, QUERIES, 4).cuda()
    labels = torch.randint(CLASSES, (BATCH, QUERIES)).cuda()
    predicted, logits = model(images)
    loss = F.l1_loss(predicted, boxes) + F.cross_entropy(logits.flatten(0, 1), labels.flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())
