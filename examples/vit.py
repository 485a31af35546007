#!/usr/bin/env python3
"""Train a vision transformer on random images: nothing to download, nothing to install but torch.

    gmemtop run -- python examples/vit.py
    gmemtop record -o vit.gmt -- python examples/vit.py --steps 30

It is ViT-B/16 of Dosovitskiy et al. 2021 with 86 M parameters (12 layers, 768 wide, 12 heads, patches of
16x16 pixels and a class token), without dropout, with AdamW, in float32. On a machine without a GPU, --batch
2 --image 32 --patch 8 --layers 2 --width 64 --heads 2 takes milliseconds a step.
"""

import argparse
import os
import time

# For --deterministic. cuBLAS reads it when it starts.
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import torch
from torch import nn
from torch.nn import functional as F


def parse():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    p.add_argument("--batch", type=int, default=32, help="images a step")
    p.add_argument("--steps", type=int, default=100)
    p.add_argument(
        "--image",
        type=int,
        default=224,
        help="height and width of an image, in pixels: a multiple of --patch",
    )
    p.add_argument("--patch", type=int, default=16, help="height and width of a patch, in pixels")
    p.add_argument("--layers", type=int, default=12)
    p.add_argument("--width", type=int, default=768)
    p.add_argument("--heads", type=int, default=12)
    p.add_argument("--classes", type=int, default=1000)
    p.add_argument("--lr", type=float, default=1e-4)
    p.add_argument("--seed", type=int, default=0)
    p.add_argument(
        "--deterministic",
        action="store_true",
        help="a bit-identical loss in every run, on a GPU as well; slower",
    )
    args = p.parse_args()
    if args.image < args.patch or args.image % args.patch:
        p.error(f"--image {args.image}: it must be a multiple of --patch, {args.patch}")
    if args.width % args.heads:
        p.error(f"--width {args.width}: it must be a multiple of --heads, {args.heads}")
    return args


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        batch, tokens, width = x.shape
        q, k, v = self.qkv(x).view(batch, tokens, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        return self.proj(
            F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(batch, tokens, width)
        )


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.ln1, self.attention = nn.LayerNorm(width), Attention(width, heads)
        self.ln2, self.up, self.down = (
            nn.LayerNorm(width),
            nn.Linear(width, 4 * width),
            nn.Linear(4 * width, width),
        )

    def forward(self, x):
        x = x + self.attention(self.ln1(x))
        return x + self.down(F.gelu(self.up(self.ln2(x))))


class ViT(nn.Module):
    def __init__(self, image=224, patch=16, layers=12, width=768, heads=12, classes=1000):
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, patch)
        self.token = nn.Parameter(torch.zeros(1, 1, width))
        self.positions = nn.Parameter(torch.zeros(1, 1 + (image // patch) ** 2, width))
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.ln = nn.LayerNorm(width)
        self.head = nn.Linear(width, classes)
        for m in self.modules():
            if isinstance(m, nn.Linear):
                nn.init.trunc_normal_(m.weight, std=0.02)
                nn.init.zeros_(m.bias)
        nn.init.trunc_normal_(self.positions, std=0.02)

    def forward(self, images):
        x = self.patches(images).flatten(2).transpose(1, 2)
        x = torch.cat((self.token.expand(len(x), -1, -1), x), 1) + self.positions
        for block in self.blocks:
            x = block(x)
        return self.head(self.ln(x)[:, 0])


def main():
    args = parse()
    torch.manual_seed(args.seed)
    if args.deterministic:
        torch.use_deterministic_algorithms(True)
        torch.utils.deterministic.fill_uninitialized_memory = False

    model = ViT(args.image, args.patch, args.layers, args.width, args.heads, args.classes).to(args.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.1)
    print(f"{sum(p.numel() for p in model.parameters()) / 1e6:.1f} M parameters on {args.device}", flush=True)

    # Four batches from the host, used in turn, as from a data loader.
    data = [
        (torch.randn(args.batch, 3, args.image, args.image), torch.randint(args.classes, (args.batch,)))
        for _ in range(4)
    ]

    for step in range(args.steps):
        began = time.perf_counter()
        images, labels = (t.to(args.device) for t in data[step % len(data)])
        optimizer.zero_grad()
        loss = F.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        value = loss.item()  # waits for the GPU
        print(f"step {step + 1} loss {value:.6f} {(time.perf_counter() - began) * 1e3:.1f} ms", flush=True)


if __name__ == "__main__":
    main()
