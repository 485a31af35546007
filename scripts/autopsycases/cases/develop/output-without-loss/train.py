"""Trains a reversible network with two outputs, one of which the loss does not use."""

import sys

import torch
import torch.nn.functional as F
from torch import nn

FIXED = "--fixed" in sys.argv


class Half(nn.Sequential):
    def __init__(self, channels):
        super().__init__(
            nn.Conv2d(channels, channels, 3, padding=1), nn.GroupNorm(4, channels), nn.LeakyReLU()
        )


class Block(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.f, self.g = Half(channels // 2), Half(channels // 2)

    def forward(self, x):
        a, b = x.chunk(2, dim=1)
        a = a + self.f(b)
        return torch.cat([a, b + self.g(a)], dim=1)

    def backward_pass(self, y, grad):
        """Returns the block's input and its gradient, and adds to the gradients of its weights."""
        a, b = y.chunk(2, dim=1)
        with torch.no_grad():
            b = b - self.g(a)
            x = torch.cat([a - self.f(b), b], dim=1)
        x = x.detach().requires_grad_()
        with torch.enable_grad():
            out = self(x)
        torch.autograd.backward(out, grad)
        return x.detach(), x.grad


class Reversible(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, blocks):
        for block in blocks:
            with torch.no_grad():
                x = block(x)
        ctx.blocks = blocks
        if FIXED:
            ctx.save_for_backward(x)
        else:
            ctx.y = x
        return x

    @staticmethod
    def backward(ctx, grad):
        if FIXED:
            (y,) = ctx.saved_tensors
        else:
            y = ctx.y
            del ctx.y
        for block in reversed(ctx.blocks):
            y, grad = block.backward_pass(y, grad)
        return grad, None


class Net(nn.Module):
    def __init__(self, channels=32, depth=4):
        super().__init__()
        self.stem = nn.Conv2d(4, channels, 3, padding=1)
        self.tumour = nn.ModuleList(Block(channels) for _ in range(depth))
        self.outline = nn.ModuleList(Block(channels) for _ in range(depth))
        self.heads = nn.ModuleList(nn.Conv2d(channels, 3, 1) for _ in range(2))

    def forward(self, x):
        x = self.stem(x)
        return [h(Reversible.apply(x, b)) for h, b in zip(self.heads, (self.tumour, self.outline))]


net = Net().cuda()
optimizer = torch.optim.Adam(net.parameters(), lr=1e-4)
for step in range(50):
    scans, labels = torch.rand(4, 4, 256, 256).cuda(), torch.randint(3, (4, 256, 256)).cuda()
    tumour, _ = net(scans)
    loss = F.cross_entropy(tumour, labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(loss.item())
