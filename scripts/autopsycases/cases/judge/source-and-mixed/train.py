"""Adapts a segmentation network to a new domain: losses of source, features and mixed images are summed."""

import sys

import torch
import torch.nn.functional as F
from nets import UNet

FIXED = "--fixed" in sys.argv

student, teacher = UNet(classes=19, width=48).cuda(), UNet(classes=19, width=48).cuda().requires_grad_(False)
optimizer = torch.optim.AdamW(student.parameters(), lr=6e-5)
for step in range(3):
    source, target = (torch.rand(4, 3, 512, 512, device="cuda") for _ in range(2))
    labels = torch.randint(19, (4, 512, 512), device="cuda")
    optimizer.zero_grad()
    loss = F.cross_entropy(student(source), labels)
    if FIXED:
        loss.backward()
    with torch.no_grad():
        pseudo = teacher(target).argmax(dim=1)
    mask = (labels < 9).unsqueeze(1)
    mixed = torch.where(mask, source, target)
    mixed_labels = torch.where(mask[:, 0], labels, pseudo)
    mixed_loss = F.cross_entropy(student(mixed), mixed_labels)
    flipped_loss = F.cross_entropy(student(mixed.flip(3)), mixed_labels.flip(2))
    if FIXED:
        mixed_loss.backward()
        flipped_loss.backward()
    else:
        (loss + mixed_loss + flipped_loss).backward()
    optimizer.step()
    with torch.no_grad():
        for a, p in zip(teacher.parameters(), student.parameters()):
            a.lerp_(p, 0.001)
