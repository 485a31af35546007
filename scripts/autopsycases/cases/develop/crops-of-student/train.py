"""Trains a vision transformer without labels: a student sees all crops, a teacher the large ones."""

import copy
import sys

import torch
import torch.nn.functional as F
from nets import Block
from torch import nn

FIXED = "--fixed" in sys.argv
LOCAL_CROPS = 8


class VisionTransformer(nn.Module):
    def __init__(self, width=384, layers=12, heads=6, patch=16, out_dim=65_536):
        super().__init__()
        self.patch_embed = nn.Conv2d(3, width, patch, patch)
        self.pos_embed = nn.Parameter(torch.zeros(1, width, 14, 14))
        self.blocks = nn.ModuleList(Block(width, heads, causal=False) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Sequential(
            nn.Linear(width, 2048), nn.GELU(), nn.Linear(2048, 2048), nn.GELU(), nn.Linear(2048, 256),
            nn.Linear(256, out_dim, bias=False),
        )

    def forward_features(self, crops):
        x = self.patch_embed(crops)
        x = x + F.interpolate(self.pos_embed, size=x.shape[2:], mode="bilinear")
        x = x.flatten(2).transpose(1, 2)
        for block in self.blocks:
            x = block(x)
        return self.norm(x).mean(dim=1)

    def forward(self, crops):
        """Runs the backbone once for each size of crops, and the head on all of them."""
        if torch.is_tensor(crops):
            return self.head(self.forward_features(crops))
        sizes = [[c for c in crops if c.shape[-1] == size] for size in (224, 96)]
        output = torch.cat([self.forward_features(torch.cat(same)) for same in sizes if same])
        return self.head(output)


class DINOLoss(nn.Module):
    def __init__(self, student_temp=0.1, teacher_temp=0.04):
        super().__init__()
        self.student_temp, self.teacher_temp = student_temp, teacher_temp

    def one(self, student_out, teacher_out):
        q = F.softmax(teacher_out / self.teacher_temp, dim=-1)
        return torch.sum(-q * F.log_softmax(student_out / self.student_temp, dim=-1), dim=-1).mean()

    def forward(self, student_output, teacher_output):
        total_loss, n_loss_terms = 0, 0
        student_out = student_output.chunk(2 + LOCAL_CROPS)
        teacher_out = teacher_output.detach().chunk(2)
        for iq, q in enumerate(teacher_out):
            for v, out in enumerate(student_out):
                if v == iq:
                    continue
                total_loss += self.one(out, q)
                n_loss_terms += 1
        return total_loss / n_loss_terms


def images(batch):
    large = [torch.rand(batch, 3, 224, 224).cuda() for _ in range(2)]
    return large + [torch.rand(batch, 3, 96, 96).cuda() for _ in range(LOCAL_CROPS)]


def train_one_epoch(student, teacher, dino_loss, optimizer, steps):
    for it in range(steps):
        crops = images(32)
        with torch.no_grad():
            teacher_output = teacher(crops[:2])
        optimizer.zero_grad()
        if FIXED:
            for v, crop in enumerate(crops):
                for iq, q in enumerate(teacher_output.chunk(2)):
                    if v != iq:
                        (dino_loss.one(student(crop), q) / (2 + 2 * LOCAL_CROPS)).backward()
        else:
            loss = dino_loss(student(crops), teacher_output)
            loss.backward()
        optimizer.step()
        with torch.no_grad():
            for param_q, param_k in zip(student.parameters(), teacher.parameters()):
                param_k.mul_(0.996).add_(0.004 * param_q.detach())


student = VisionTransformer().cuda()
teacher = copy.deepcopy(student).requires_grad_(False)
optimizer = torch.optim.AdamW(student.parameters())
train_one_epoch(student, teacher, DINOLoss(), optimizer, steps=3)
