"""Trains a sparse autoencoder on activations and logs its codes, gradients and norms."""

import sys
from collections import defaultdict

import torch
from torch import nn

FIXED = "--fixed" in sys.argv
WIDTH, CODES = 768, 6144


class TopKSAE(nn.Module):
    def __init__(self, k=32):
        super().__init__()
        self.k = k
        self.encoder = nn.Sequential(nn.Linear(WIDTH, CODES), nn.BatchNorm1d(CODES))
        self.dictionary = nn.Parameter(torch.randn(CODES, WIDTH) / WIDTH**0.5)

    def forward(self, x):
        before = self.encoder(x)
        top = before.topk(self.k, dim=-1)
        codes = torch.zeros_like(before).scatter(-1, top.indices, top.values.relu())
        return before, codes, codes @ self.dictionary


def log_metrics(logs, model, codes, loss):
    logs["loss"].append(loss.item())
    kept = codes.detach()
    logs["z"].append((kept.cpu() if FIXED else kept)[::10])
    for name, p in model.named_parameters():
        if p.grad is not None:
            logs[f"gradients/{name}"].append(p.grad.norm().item())


def train_sae(model, batches, epochs):
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    logs = defaultdict(list)
    for _ in range(epochs):
        for x in batches:
            x = x.cuda(non_blocking=True)
            optimizer.zero_grad()
            before, codes, reconstructed = model(x)
            loss = (reconstructed - x).square().mean()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            log_metrics(logs, model, codes, loss)
    return logs


print(len(train_sae(TopKSAE().cuda(), [torch.rand(4096, WIDTH) for _ in range(20)], 3)["loss"]))
