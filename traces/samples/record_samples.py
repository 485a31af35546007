#!/usr/bin/env python3
"""Record the embedded samples: real training steps of a ResNet-18 and of a small GPT, in PyTorch, on the CPU.

usage: record_samples.py OUTDIR [NAME]

For each model it writes torch.profiler's chrome trace of four steps (with memory events, stacks, modules and
shapes) and a description of two steps, op by op. gmemtop reads both; `make samples` turns them into the .gmt
files next to this script. No data set is needed: inputs are random, and the recording does not depend on
their values.
"""

import os
import subprocess
import sys

import torch
from torch import nn
from torch.nn import functional as F
from torch.profiler import ProfilerActivity, profile, record_function

STEPS = 4


class Block(nn.Module):
    """A residual block of two 3x3 convolutions (He et al. 2016, figure 5 left)."""

    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = None
        if stride != 1 or inputs != outputs:
            self.downsample = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
            )

    def forward(self, x):
        identity = x if self.downsample is None else self.downsample(x)
        x = self.relu(self.bn1(self.conv1(x)))
        return self.relu(self.bn2(self.conv2(x)) + identity)


class ResNet18(nn.Module):
    def __init__(self, classes=1000):
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 64, 7, 2, 3, bias=False),
            nn.BatchNorm2d(64),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, 2, 1),
        )
        stages, width = [], 64
        for i, out in enumerate((64, 128, 256, 512)):
            stages.append(nn.Sequential(Block(width, out, 1 if i == 0 else 2), Block(out, out, 1)))
            width = out
        self.layer1, self.layer2, self.layer3, self.layer4 = stages
        self.fc = nn.Linear(512, classes)

    def forward(self, x):
        x = self.layer4(self.layer3(self.layer2(self.layer1(self.stem(x)))))
        return self.fc(x.mean((2, 3)))


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        return self.proj(
            F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, c)
        )


class Layer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.ln1, self.attn = nn.LayerNorm(width), Attention(width, heads)
        self.ln2, self.mlp = (
            nn.LayerNorm(width),
            nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)),
        )

    def forward(self, x):
        x = x + self.attn(self.ln1(x))
        return x + self.mlp(self.ln2(x))


class GPT(nn.Module):
    def __init__(self, vocabulary=32000, context=256, width=384, layers=6, heads=6):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
        self.layers = nn.ModuleList(Layer(width, heads) for _ in range(layers))
        self.ln, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens):
        x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1]))
        for layer in self.layers:
            x = layer(x)
        return self.head(self.ln(x))


def resnet18():
    model = ResNet18()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def step():
        images, labels = torch.randn(16, 3, 128, 128), torch.randint(0, 1000, (16,))
        optimizer.zero_grad(set_to_none=True)
        F.cross_entropy(model(images), labels).backward()
        optimizer.step()

    return step, model, optimizer


def gpt():
    model = GPT()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)

    def step():
        tokens = torch.randint(0, 32000, (4, 257))
        optimizer.zero_grad(set_to_none=True)
        logits = model(tokens[:, :-1])
        F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten()).backward()
        optimizer.step()

    return step, model, optimizer


def record(name, make, out):
    torch.manual_seed(0)
    path = os.path.join(out, name + ".json")
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True, with_stack=True) as prof:
        # The model is built under the profiler, so that the trace has the parameters' allocations.
        with record_function("build"):
            step, _, _ = make()
        for _ in range(STEPS):
            prof.step()
            step()
        prof.step()
    prof.export_chrome_trace(path)
    print(path, os.path.getsize(path))


def describe(name, make, out):
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "described"))
    from describe import Describe

    torch.manual_seed(0)
    path = os.path.join(out, name + ".jsonl")
    step, model, optimizer = make()
    for _ in range(3):  # fills caches and creates the optimizer's state
        step()
    recorder = Describe(path, model, optimizer)
    for _ in range(2):
        with recorder.step():
            step()
    recorder.close()
    print(path, os.path.getsize(path))


MODELS = {"resnet18-cpu": resnet18, "gpt-cpu": gpt}
DESCRIBED = {"resnet18-steps-cpu": resnet18, "gpt-steps-cpu": gpt}

if __name__ == "__main__":
    out = sys.argv[1]
    os.makedirs(out, exist_ok=True)
    if len(sys.argv) > 2:
        if sys.argv[2] in DESCRIBED:
            describe(sys.argv[2], DESCRIBED[sys.argv[2]], out)
        else:
            record(sys.argv[2], MODELS[sys.argv[2]], out)
    else:
        # Each in its own process: what one model leaves allocated would show up in the other's recording.
        for name in list(MODELS) + list(DESCRIBED):
            subprocess.run([sys.executable, os.path.abspath(__file__), out, name], check=True)
