#!/usr/bin/env python3
"""Train a multilayer perceptron on random vectors: nothing to download, nothing to install but torch.

    gmemtop run -- python examples/mlp.py
    gmemtop record -o mlp.gmt -- python examples/mlp.py --steps 30

Fully connected layers (--layers of them) with ReLU between them, with Adam, in float32: the plainest network
there is, small enough to count every tensor by hand. The defaults have 121 M parameters. On a machine without
a GPU, --batch 64 --width 128 takes a millisecond a step.
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
    p.add_argument("--batch", type=int, default=8192, help="vectors a step")
    p.add_argument("--steps", type=int, default=100)
    p.add_argument(
        "--inputs", type=int, default=784, help="length of a vector: 784 are the pixels of a digit of MNIST"
    )
    p.add_argument("--layers", type=int, default=9, help="fully connected layers, the last included")
    p.add_argument("--width", type=int, default=4096)
    p.add_argument("--classes", type=int, default=10)
    p.add_argument(
        "--dropout", type=float, default=0.0, help="share of the activations that are dropped after each ReLU"
    )
    p.add_argument("--lr", type=float, default=1e-4)
    p.add_argument("--seed", type=int, default=0)
    p.add_argument(
        "--deterministic",
        action="store_true",
        help="a bit-identical loss in every run, on a GPU as well; slower",
    )
    return p.parse_args()


class MLP(nn.Sequential):
    def __init__(self, inputs=784, layers=9, width=4096, classes=10, dropout=0.0):
        widths = [inputs] + [width] * (layers - 1) + [classes]
        linear = [nn.Linear(a, b) for a, b in zip(widths, widths[1:])]
        stack = []
        for layer in linear[:-1]:
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
            stack += [layer, nn.ReLU()] + ([nn.Dropout(dropout)] if dropout else [])
        super().__init__(*stack, linear[-1])


def main():
    args = parse()
    torch.manual_seed(args.seed)
    if args.deterministic:
        torch.use_deterministic_algorithms(True)
        torch.utils.deterministic.fill_uninitialized_memory = False

    model = MLP(args.inputs, args.layers, args.width, args.classes, args.dropout).to(args.device)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    print(f"{sum(p.numel() for p in model.parameters()) / 1e6:.1f} M parameters on {args.device}", flush=True)

    # Four batches from the host, used in turn, as from a data loader.
    data = [
        (torch.randn(args.batch, args.inputs), torch.randint(args.classes, (args.batch,))) for _ in range(4)
    ]

    for step in range(args.steps):
        began = time.perf_counter()
        vectors, labels = (t.to(args.device) for t in data[step % len(data)])
        optimizer.zero_grad()
        loss = F.cross_entropy(model(vectors), labels)
        loss.backward()
        optimizer.step()
        value = loss.item()  # waits for the GPU
        print(f"step {step + 1} loss {value:.6f} {(time.perf_counter() - began) * 1e3:.1f} ms", flush=True)


if __name__ == "__main__":
    main()
