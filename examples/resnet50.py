#!/usr/bin/env python3
"""Train a ResNet-50 on random images: nothing to download, nothing to install but torch.

    gmemtop run -- python examples/resnet50.py
    gmemtop record -o resnet50.gmt -- python examples/resnet50.py --steps 30

It is the network of He et al. 2016 (bottlenecks 3, 4, 6, 3; --blocks 3,4,23,3 makes it a ResNet-101; the
stride in the 3x3 convolution, as is usual), with SGD and momentum, in float32. On a machine without a GPU,
--batch 2 --image 64 --width 16 takes a fraction of a second a step.
"""

import argparse
import time

import torch
from torch import nn
from torch.nn import functional as F


def parse():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    p.add_argument("--batch", type=int, default=32, help="images a step")
    p.add_argument("--steps", type=int, default=100)
    p.add_argument("--image", type=int, default=224, help="height and width of an image, in pixels")
    p.add_argument("--blocks", default="3,4,6,3", help="bottlenecks in each stage")
    p.add_argument("--width", type=int, default=64, help="channels of the first stage")
    p.add_argument("--classes", type=int, default=1000)
    p.add_argument("--lr", type=float, default=0.01)
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--memory", type=float, help="the most GiB of the GPU that PyTorch's allocator may take")
    p.add_argument(
        "--deterministic",
        action="store_true",
        help="a bit-identical loss in every run, on a GPU as well; slower",
    )
    return p.parse_args()


def conv(inputs, outputs, size, stride=1):
    return nn.Conv2d(inputs, outputs, size, stride, padding=size // 2, bias=False)


class Bottleneck(nn.Module):
    """1x1 down, 3x3, 1x1 up to four times the width, around a shortcut."""

    def __init__(self, inputs, width, stride):
        super().__init__()
        outputs = 4 * width
        self.conv1, self.bn1 = conv(inputs, width, 1), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = conv(width, width, 3, stride), nn.BatchNorm2d(width)
        self.conv3, self.bn3 = conv(width, outputs, 1), nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU(inplace=True)
        self.shortcut = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(conv(inputs, outputs, 1, stride), nn.BatchNorm2d(outputs))

    def forward(self, x):
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.relu(self.bn2(self.conv2(y)))
        return self.relu(self.bn3(self.conv3(y)) + self.shortcut(x))


class ResNet(nn.Module):
    def __init__(self, counts=(3, 4, 6, 3), width=64, classes=1000):
        super().__init__()
        self.stem = nn.Sequential(
            conv(3, width, 7, 2), nn.BatchNorm2d(width), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)
        )
        stages, inputs = [], width
        for i, blocks in enumerate(counts):
            stage = []
            for b in range(blocks):
                stage.append(Bottleneck(inputs, width << i, 2 if i > 0 and b == 0 else 1))
                inputs = 4 * (width << i)
            stages.append(nn.Sequential(*stage))
        self.layer1, self.layer2, self.layer3, self.layer4 = stages
        self.fc = nn.Linear(inputs, classes)
        for m in self.modules():
            if isinstance(m, nn.Conv2d):
                nn.init.kaiming_normal_(m.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x):
        x = self.layer4(self.layer3(self.layer2(self.layer1(self.stem(x)))))
        return self.fc(x.mean((2, 3)))


def main():
    args = parse()
    torch.manual_seed(args.seed)
    if args.deterministic:
        torch.backends.cudnn.deterministic = True

    if args.memory:
        torch.cuda.set_per_process_memory_fraction(
            args.memory * 2**30 / torch.cuda.get_device_properties(args.device).total_memory
        )
    model = ResNet([int(n) for n in args.blocks.split(",")], args.width, args.classes).to(args.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9, weight_decay=1e-4)
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
