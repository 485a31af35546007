"""Optimizes each layer's output projection by itself, then evaluates the model, for several trials."""

import sys

import torch
from nets import GPT

FIXED = "--fixed" in sys.argv

model = GPT(width=1280, layers=24, heads=20, vocabulary=32000).cuda().eval()
for p in model.parameters():
    p.requires_grad_(False)


def optimize(module, inputs):
    module.weight.requires_grad_(True)
    wanted = torch.randn(len(inputs), module.out_features, device="cuda")
    optimizer = torch.optim.LBFGS([module.weight], max_iter=5, history_size=2)

    def closure():
        optimizer.zero_grad()
        loss = (module(inputs) - wanted).square().mean()
        loss.backward()
        return loss

    optimizer.step(closure)
    module.weight.requires_grad_(False)
    if FIXED:
        module.weight.grad = None


def evaluate():
    with torch.no_grad():
        for _ in range(4):
            logits = model(torch.randint(32000, (2, 1024), device="cuda"))
            print(logits.shape)


for trial in range(3):
    for block in model.blocks:
        for module in (block.attention.out, block.mlp[0], block.mlp[2]):
            optimize(module, torch.randn(256, module.in_features, device="cuda"))
    evaluate()
