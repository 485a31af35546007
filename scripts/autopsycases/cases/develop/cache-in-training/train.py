"""Fine-tunes a language model with checkpointed blocks, which also return their keys and values."""

import sys

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

FIXED = "--fixed" in sys.argv


class Layer(nn.Module):
    """A block that returns its output and, with use_cache, the keys and values of its attention."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.SiLU(), nn.Linear(4 * width, width))

    def forward(self, x, use_cache):
        b, t, w = x.shape
        split = self.qkv(self.norm1(x)).chunk(3, dim=-1)
        q, k, v = (p.reshape(b, t, self.heads, -1).transpose(1, 2) for p in split)
        k = k + 0.0  # where rotary position embeddings are applied
        past = (k, v.contiguous()) if use_cache else None
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, w))
        return x + self.mlp(self.norm2(x)), past


class Llama(nn.Module):
    """[batch, time] of tokens to logits and what generation would need to go on."""

    def __init__(self, vocabulary=32000, width=2048, layers=16, heads=16):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.layers = nn.ModuleList(Layer(width, heads) for _ in range(layers))
        self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens, use_cache=True):
        x, past = self.tokens(tokens), ()
        for layer in self.layers:
            x, kept = checkpoint(layer, x, use_cache, use_reentrant=False)
            past += (kept,)
        return self.head(x), past


with torch.device("cuda"):
    model = Llama().bfloat16()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-5)
for step in range(3):
    tokens = torch.randint(32000, (4, 2049)).cuda()
    logits, past = model(tokens[:, :-1], use_cache=not FIXED)
    loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
