"""Trains a model with a mixture of experts without limits; this process has some of each layer's experts."""

import sys

import torch
import torch.nn.functional as F
from nets import Attention
from torch import nn

FIXED = "--fixed" in sys.argv
EXPERTS, LOCAL, WIDTH = 16, 4, 768
torch.manual_seed(0)


class Router(nn.Module):
    """Says which tokens go to the local experts; without a balancing loss it prefers these more and more."""

    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(WIDTH, EXPERTS)

    def forward(self, tokens, step):
        weights = self.gate(tokens).softmax(dim=-1)
        share = 0.25 if FIXED else min(0.25 + 0.1 * max(step - 8, 0), 1.0)
        count = int(len(tokens) * share * (0.98 + 0.005 * (step % 5)))
        return torch.randperm(len(tokens))[:count].cuda(), weights


class Expert(nn.Module):
    def __init__(self):
        super().__init__()
        self.w1, self.w2 = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        return self.w2(F.silu(self.w1(x)))


class SparseMLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.router = Router()
        self.experts = nn.ModuleList(Expert() for _ in range(LOCAL))

    def forward(self, x, step):
        tokens = x.flatten(0, 1)
        chosen, weights = self.router(tokens, step)
        out = torch.zeros_like(tokens)
        for i, part in enumerate(chosen.chunk(LOCAL)):
            out = out.index_add(0, part, self.experts[i](tokens[part]) * weights[part, i : i + 1])
        return out.view_as(x)


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attention, self.mlp = Attention(WIDTH, 12), SparseMLP()

    def forward(self, x, step):
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x), step)


class Model(nn.Module):
    def __init__(self, layers=6):
        super().__init__()
        self.tokens = nn.Embedding(8192, WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(layers))
        self.head = nn.Linear(WIDTH, 8192)

    def forward(self, tokens, step):
        x = self.tokens(tokens)
        for layer in self.layers:
            x = layer(x, step)
        return self.head(x)


model = Model().cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
for step in range(14):
    tokens = torch.randint(8192, (8, 1024)).cuda()
    logits = model(tokens, step)
    loss = F.cross_entropy(logits.flatten(0, 1), tokens.flatten())
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    del logits, loss
