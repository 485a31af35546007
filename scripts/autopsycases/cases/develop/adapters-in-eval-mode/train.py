"""Trains adapters of a frozen diffusion transformer, which stays in eval mode."""

import sys

import torch
import torch.nn.functional as F
from nets import Block
from torch import nn
from torch.utils.checkpoint import checkpoint

FIXED = "--fixed" in sys.argv
WIDTH, LAYERS, TOKENS, BATCH = 1024, 24, 1024, 4


class Adapter(nn.Module):
    """A frozen linear layer with a trained one of low rank beside it."""

    def __init__(self, base, rank=16):
        super().__init__()
        self.base = base.requires_grad_(False)
        self.a = nn.Linear(base.in_features, rank, bias=False)
        self.b = nn.Linear(rank, base.out_features, bias=False)

    def forward(self, x):
        return self.base(x) + self.b(self.a(x))


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(16, WIDTH)
        self.blocks = nn.ModuleList(Block(WIDTH, 16, causal=False) for _ in range(LAYERS))
        self.outer = nn.Linear(WIDTH, 16)
        self.gradient_checkpointing = False

    def forward(self, x):
        x = self.inner(x)
        for block in self.blocks:
            wanted = torch.is_grad_enabled() if FIXED else self.training
            if wanted and self.gradient_checkpointing:
                x = checkpoint(block, x, use_reentrant=False)
            else:
                x = block(x)
        return self.outer(x)


model = Transformer().requires_grad_(False).eval()
for block in model.blocks:
    block.attention.qkv = Adapter(block.attention.qkv)
    block.attention.out = Adapter(block.attention.out)
model.gradient_checkpointing = True
model = model.cuda()
optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-4)
for step in range(3):
    noise, latents = torch.randn(2, BATCH, TOKENS, 16).cuda()
    t = torch.rand(BATCH, 1, 1).cuda()
    loss = F.mse_loss(model((1 - t) * latents + t * noise), noise - latents)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())
