#!/usr/bin/env python3
"""Train a VGG-16 on random images: nothing to download, nothing to install but torch.

    gmemtop run -- python examples/vgg16.py
    gmemtop record -o vgg16.gmt -- python examples/vgg16.py --steps 30

It is configuration D of Simonyan and Zisserman 2014, with 138 M parameters, without batch normalisation, with
dropout, with SGD and momentum, in float32: few activations, the first of them large, which is why papers on
swapping train it. On a machine without a GPU, --batch 2 --image 32 --width 8 --hidden 64 takes milliseconds a
step.
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
        help="height and width of an image, in pixels: 32 or a multiple of it",
    )
    p.add_argument("--width", type=int, default=64, help="channels of the first stage")
    p.add_argument("--hidden", type=int, default=4096, help="width of the fully connected layers")
    p.add_argument("--classes", type=int, default=1000)
    p.add_argument("--lr", type=float, default=0.01)
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--memory", type=float, help="the most GiB of the GPU that PyTorch's allocator may take")
    p.add_argument(
        "--deterministic",
        action="store_true",
        help="a bit-identical loss in every run, on a GPU as well; slower",
    )
    args = p.parse_args()
    if args.image < 32 or args.image % 32:
        p.error(f"--image {args.image}: five pooling layers halve it: use a multiple of 32")
    return args


class VGG16(nn.Module):
    def __init__(self, image=224, width=64, hidden=4096, classes=1000):
        super().__init__()
        layers, inputs = [], 3
        for convolutions, outputs in (
            (2, width),
            (2, 2 * width),
            (3, 4 * width),
            (3, 8 * width),
            (3, 8 * width),
        ):
            for _ in range(convolutions):
                layers += [nn.Conv2d(inputs, outputs, 3, padding=1), nn.ReLU(inplace=True)]
                inputs = outputs
            layers.append(nn.MaxPool2d(2))
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Sequential(
            nn.Linear(inputs * (image // 32) ** 2, hidden),
            nn.ReLU(inplace=True),
            nn.Dropout(0.5),
            nn.Linear(hidden, hidden),
            nn.ReLU(inplace=True),
            nn.Dropout(0.5),
            nn.Linear(hidden, classes),
        )
        for m in self.modules():
            if isinstance(m, nn.Conv2d):
                nn.init.kaiming_normal_(m.weight, mode="fan_out", nonlinearity="relu")
            elif isinstance(m, nn.Linear):
                nn.init.normal_(m.weight, std=0.01)
            if isinstance(m, (nn.Conv2d, nn.Linear)):
                nn.init.zeros_(m.bias)

    def forward(self, x):
        return self.classifier(self.features(x).flatten(1))


def main():
    args = parse()
    torch.manual_seed(args.seed)
    if args.deterministic:
        torch.use_deterministic_algorithms(True)
        torch.utils.deterministic.fill_uninitialized_memory = False

    if args.memory:
        torch.cuda.set_per_process_memory_fraction(
            args.memory * 2**30 / torch.cuda.get_device_properties(args.device).total_memory
        )
    model = VGG16(args.image, args.width, args.hidden, args.classes).to(args.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9, weight_decay=5e-4)
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
