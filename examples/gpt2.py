#!/usr/bin/env python3
"""Train a GPT-2 on random tokens: nothing to download, nothing to install but torch.

    gmemtop run -- python examples/gpt2.py
    gmemtop record -o gpt2.gmt -- python examples/gpt2.py --steps 30

It is the network of Radford et al. 2019 with 124 M parameters (12 layers, 768 wide, 12 heads, 50257 tokens,
the embedding tied to the output), without dropout, with AdamW, in float32. On a machine without a GPU,
--batch 2 --sequence 32 --layers 2 --width 64 --heads 2 --vocabulary 500 takes milliseconds a step.
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
    p.add_argument("--batch", type=int, default=4, help="sequences a step")
    p.add_argument("--steps", type=int, default=100)
    p.add_argument("--sequence", type=int, default=1024, help="tokens in a sequence")
    p.add_argument("--layers", type=int, default=12)
    p.add_argument("--width", type=int, default=768)
    p.add_argument("--heads", type=int, default=12)
    p.add_argument("--vocabulary", type=int, default=50257)
    p.add_argument("--lr", type=float, default=3e-4)
    p.add_argument("--seed", type=int, default=0)
    p.add_argument(
        "--deterministic",
        action="store_true",
        help="a bit-identical loss in every run, on a GPU as well; slower",
    )
    return p.parse_args()


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        batch, tokens, width = x.shape
        q, k, v = self.qkv(x).view(batch, tokens, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.proj(y.transpose(1, 2).reshape(batch, tokens, width))


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
        return x + self.down(F.gelu(self.up(self.ln2(x)), approximate="tanh"))


class GPT2(nn.Module):
    def __init__(self, vocabulary=50257, sequence=1024, layers=12, width=768, heads=12):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(sequence, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.ln = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        for name, p in self.named_parameters():
            if p.dim() == 2:  # weights that add to the residual stream start smaller
                nn.init.normal_(
                    p,
                    std=0.02 / (2 * layers) ** 0.5 if name.endswith(("proj.weight", "down.weight")) else 0.02,
                )
            elif name.endswith("bias"):
                nn.init.zeros_(p)
        self.head.weight = self.tokens.weight

    def forward(self, tokens):
        x = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = block(x)
        return self.head(self.ln(x))


def main():
    args = parse()
    torch.manual_seed(args.seed)
    if args.deterministic:
        torch.use_deterministic_algorithms(True)
        torch.utils.deterministic.fill_uninitialized_memory = False

    model = GPT2(args.vocabulary, args.sequence, args.layers, args.width, args.heads).to(args.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.1)
    print(f"{sum(p.numel() for p in model.parameters()) / 1e6:.1f} M parameters on {args.device}", flush=True)

    # Four batches from the host, used in turn, as from a data loader.
    data = [torch.randint(args.vocabulary, (args.batch, args.sequence + 1)) for _ in range(4)]

    for step in range(args.steps):
        began = time.perf_counter()
        tokens = data[step % len(data)].to(args.device)
        optimizer.zero_grad()
        logits = model(tokens[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        value = loss.item()  # waits for the GPU
        print(f"step {step + 1} loss {value:.6f} {(time.perf_counter() - began) * 1e3:.1f} ms", flush=True)


if __name__ == "__main__":
    main()
