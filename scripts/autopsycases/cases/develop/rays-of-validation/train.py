"""Trains a radiance field on rays, and validates it on whole images."""

import sys

import torch
import torch.nn.functional as F
from torch import nn

FIXED = "--fixed" in sys.argv
BATCH, SAMPLES = 8192, 64


class Field(nn.Module):
    def __init__(self, levels=8, table=1 << 17, features=2):
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(table, features) for _ in range(levels))
        self.sigma = nn.Sequential(nn.Linear(levels * features, 64), nn.ReLU(), nn.Linear(64, 16))
        self.rgb = nn.Sequential(nn.Linear(19, 64), nn.ReLU(), nn.Linear(64, 3))
        self.size = table

    def forward(self, x, d):
        features = []
        for level, table in enumerate(self.tables):
            cell = (x * (16 << level)).long()
            index = (cell[:, 0] ^ cell[:, 1] * 2654435 ^ cell[:, 2] * 805459) % self.size
            features.append(table(index))
        h = self.sigma(torch.cat(features, dim=-1))
        return F.softplus(h[:, 0]), torch.sigmoid(self.rgb(torch.cat([h, d], dim=-1)))


def render(model, rays):
    origins, directions = rays[:, :3], rays[:, 3:]
    t = torch.linspace(0.1, 1.0, SAMPLES, device=rays.device)
    x = origins[:, None] + t[None, :, None] * directions[:, None]
    d = directions[:, None].expand_as(x)
    sigma, rgb = model(x.reshape(-1, 3).abs(), d.reshape(-1, 3))
    alpha = 1 - torch.exp(-sigma.view(-1, SAMPLES) * 0.02)
    weights = alpha * torch.cumprod(1 - alpha + 1e-10, dim=1)
    return (weights[..., None] * rgb.view(-1, SAMPLES, 3)).sum(dim=1)


class System:
    def __init__(self):
        self.model = Field().cuda()
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-2, eps=1e-15)

    def training_step(self):
        rays = torch.rand(BATCH, 6).cuda()
        loss = F.mse_loss(render(self.model, rays), torch.rand(BATCH, 3).cuda())
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()

    @torch.no_grad()
    def validation_step(self, height=504, width=756):
        rays = torch.rand(height * width, 6).cuda()
        if FIXED:
            image = torch.cat([render(self.model, chunk) for chunk in rays.split(32768)])
        else:
            image = render(self.model, rays)
        return F.mse_loss(image, torch.rand_like(image)).item()


system = System()
for epoch in range(2):
    for step in range(10):
        loss = system.training_step()
    print(epoch, loss, system.validation_step())
