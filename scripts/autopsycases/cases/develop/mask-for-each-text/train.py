"""Fine-tunes a small language model on short texts in large batches; its context may be long."""

import sys

import torch
import torch.nn.functional as F
from torch import nn

FIXED = "--fixed" in sys.argv
VOCABULARY, CONTEXT = 32000, 8192


class Layer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x, mask):
        b, t, w = x.shape
        q, k, v = (p.view(b, t, self.heads, -1).transpose(1, 2) for p in self.qkv(self.norm1(x)).chunk(3, -1))
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask[..., :t, :t])
        x = x + self.out(y.transpose(1, 2).reshape(b, t, w))
        return x + self.mlp(self.norm2(x))


class LanguageModel(nn.Module):
    def __init__(self, width=512, layers=8, heads=8):
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, width)
        self.layers = nn.ModuleList(Layer(width, heads) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, VOCABULARY, bias=False)
        future = torch.ones(CONTEXT, CONTEXT, dtype=torch.bool).triu(1)
        self.register_buffer("causal_mask", future, persistent=False)

    def update_causal_mask(self, x):
        lowest = torch.finfo(x.dtype).min
        if FIXED:
            mask = self.causal_mask[None, None].to(x.dtype) * lowest
            return mask.expand(len(x), 1, -1, -1)
        return self.causal_mask[None, None].repeat(len(x), 1, 1, 1).to(x.dtype) * lowest

    def forward(self, tokens):
        x = self.tokens(tokens)
        mask = self.update_causal_mask(x)
        for layer in self.layers:
            x = layer(x, mask)
        return self.head(self.norm(x))


model = LanguageModel().to("cuda", torch.bfloat16)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
for step in range(4):
    tokens = torch.randint(VOCABULARY, (64, 64)).cuda()
    logits = model(tokens)[:, :-1]
    loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
