"""Fine-tunes a language model on images; its vision tower is frozen, and a hook lets gradients through."""

import sys

import torch
import torch.nn.functional as F
from nets import GPT, Block
from torch import nn

FIXED = "--fixed" in sys.argv


class Tower(nn.Module):
    """A vision transformer: [batch, 3, height, width] to [batch, patches, width]."""

    def __init__(self, width=1024, layers=24, heads=16):
        super().__init__()
        self.patches = nn.Conv2d(3, width, 14, 14)
        self.blocks = nn.Sequential(*(Block(width, heads, causal=False) for _ in range(layers)))

    def forward(self, images):
        return self.blocks(self.patches(images).flatten(2).transpose(1, 2))


with torch.device("cuda"):
    tower = Tower().bfloat16().requires_grad_(False)
    aligner = nn.Linear(1024, 768).bfloat16()
    model = GPT(vocabulary=32000, layers=8, context=2048).bfloat16()
tower.patches.register_forward_hook(lambda module, args, output: output.requires_grad_())
optimizer = torch.optim.AdamW([*aligner.parameters(), *model.parameters()], lr=1e-5)
for step in range(3):
    images = torch.rand(16, 3, 448, 448, device="cuda", dtype=torch.bfloat16)
    words = torch.randint(32000, (16, 65)).cuda()
    with torch.set_grad_enabled(not FIXED):
        seen = tower(images)
    x = torch.cat([aligner(seen)[:, ::16], model.tokens(words[:, :-1])], dim=1)
    for block in model.blocks:
        x = block(x)
    logits = model.head(model.norm(x[:, -64:]))
    loss = F.cross_entropy(logits.flatten(0, 1), words[:, 1:].flatten())
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
