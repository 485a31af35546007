"""Resumes the training of an image classifier from a checkpoint."""

import os
import sys
import tempfile

import torch
import torch.nn.functional as F
from nets import Block
from torch import nn

FIXED = "--fixed" in sys.argv
path = os.path.join(tempfile.mkdtemp(), "last.pth.tar")


class ViT(nn.Module):
    def __init__(self, width=1024, layers=12, heads=16, classes=1000, patch=16, size=224):
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, patch)
        self.positions = nn.Parameter(torch.zeros(1, (size // patch) ** 2, width))
        self.blocks = nn.Sequential(*(Block(width, heads, causal=False) for _ in range(layers)))
        self.head = nn.Linear(width, classes)

    def forward(self, images):
        x = self.patches(images).flatten(2).transpose(1, 2) + self.positions
        return self.head(self.blocks(x).mean(dim=1))


def save_checkpoint():
    model = ViT().cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    state = optimizer.state_dict()
    state["state"] = {i: {"momentum_buffer": torch.zeros_like(p)} for i, p in enumerate(model.parameters())}
    torch.save({"state_dict": model.state_dict(), "optimizer": state, "epoch": 3}, path)


def resume_checkpoint(model, optimizer):
    checkpoint = torch.load(path, map_location="cpu") if FIXED else torch.load(path)
    model.load_state_dict(checkpoint["state_dict"])
    optimizer.load_state_dict(checkpoint["optimizer"])
    return checkpoint, checkpoint["epoch"] + 1


def main():
    model = ViT().cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    other, start = resume_checkpoint(model, optimizer)
    for epoch in range(start, start + 2):
        for step in range(3):
            images, labels = torch.rand(2, 3, 224, 224).cuda(), torch.randint(1000, (2,)).cuda()
            loss = F.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(epoch, loss.item())


save_checkpoint()
main()
os.remove(path)
