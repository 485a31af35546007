"""Small trainings as anybody writes them: python train.py NAME [--device cpu|cuda] [--batch N] [--steps N]."""
import argparse
import contextlib

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (y.view(b, t, self.heads, c // self.heads).transpose(1, 2) for y in self.qkv(x).split(c, dim=2))
        return self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, c))


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.one, self.two = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width), nn.Dropout(0.1))

    def forward(self, x):
        x = x + self.attention(self.one(x))
        return x + self.mlp(self.two(x))


class GPT(nn.Module):
    def __init__(self, vocabulary=512, width=64, heads=4, layers=2, length=64, recompute=False):
        super().__init__()
        self.recompute = recompute
        self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)

    def forward(self, ids):
        x = self.tokens(ids) + self.places(torch.arange(ids.shape[1], device=ids.device))
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.recompute else block(x)
        return self.head(self.norm(x))


def convnet():
    def unit(i, o):
        return nn.Sequential(nn.Conv2d(i, o, 3, padding=1, bias=False), nn.BatchNorm2d(o), nn.ReLU(inplace=True))

    return nn.Sequential(unit(3, 16), unit(16, 32), nn.MaxPool2d(2), unit(32, 32), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10))


def make(name, device, batch=0):
    """The model, its optimizer and what one step does."""
    torch.manual_seed(0)
    if name in ("gpt", "checkpoint"):
        model = GPT(recompute=name == "checkpoint").to(device)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

        def step(i):
            ids = torch.randint(0, 512, (batch or 4, 65), device=device)
            logits = model(ids[:, :-1].contiguous())
            loss = F.cross_entropy(logits.view(-1, 512), ids[:, 1:].reshape(-1))
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            return loss.item()
    elif name == "convnet":
        model = convnet().to(device)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

        def step(i):
            x, y = torch.randn(batch or 8, 3, 32, 32).to(device), torch.randint(0, 10, (batch or 8,)).to(device)
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            return loss.item()
    else:
        model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10)).to(device)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        amp = torch.autocast(device, dtype=torch.bfloat16) if name == "amp" else contextlib.nullcontext()
        pieces = 4 if name == "accumulation" else 1

        def step(i):
            total = 0.0
            optimizer.zero_grad()
            for _ in range(pieces):
                x, y = torch.randn(batch or 1024, 64, device=device), torch.randint(0, 10, (batch or 1024,), device=device)
                with amp:
                    loss = F.cross_entropy(model(x), y) / pieces
                loss.backward()
                total += loss.item()
            optimizer.step()
            return total
    return model, optimizer, step


def main():
    p = argparse.ArgumentParser()
    p.add_argument("name")
    p.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    p.add_argument("--batch", type=int, default=0)
    p.add_argument("--steps", type=int, default=5)
    o = p.parse_args()
    model, optimizer, step = make(o.name, o.device, o.batch)
    for i in range(o.steps):
        print("step %d loss %.3f" % (i, step(i)), flush=True)
    torch.save(model.state_dict(), "checkpoint.pt")


if __name__ == "__main__":
    main()
