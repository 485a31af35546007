"""Generates answers for a batch of prompts; each layer joins its new keys and values to the cached ones."""

import sys

import torch
import torch.nn.functional as F
from torch import nn

FIXED = "--fixed" in sys.argv
VOCABULARY, WIDTH, LAYERS, HEADS, BATCH, PROMPT, NEW = 32_000, 2048, 22, 16, 24, 640, 256


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = (
            nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4)
        )

    def heads(self, x):
        return x.view(*x.shape[:2], HEADS, -1).transpose(1, 2)

    def forward(self, x, past_key_value, length):
        q, k, v = (self.heads(p(x)) for p in (self.q_proj, self.k_proj, self.v_proj))
        causal = q.shape[2] > 1
        if FIXED:
            keys, values = past_key_value
            until = length + k.shape[2]
            keys[:, :, length:until], values[:, :, length:until] = k, v
            k, v = keys[:, :, :until], values[:, :, :until]
        else:
            if past_key_value is not None:
                k = torch.cat([past_key_value[0], k], dim=2)
                v = torch.cat([past_key_value[1], v], dim=2)
            past_key_value = (k, v)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=causal)
        return self.o_proj(y.transpose(1, 2).flatten(2)), past_key_value


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2, self.attention = nn.RMSNorm(WIDTH), nn.RMSNorm(WIDTH), Attention()
        self.gate, self.up = nn.Linear(WIDTH, 5632, bias=False), nn.Linear(WIDTH, 5632, bias=False)
        self.down = nn.Linear(5632, WIDTH, bias=False)

    def forward(self, x, past_key_value, length):
        y, past_key_value = self.attention(self.norm1(x), past_key_value, length)
        x = x + y
        y = self.norm2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y)), past_key_value


class Llama(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.norm = nn.Embedding(VOCABULARY, WIDTH), nn.RMSNorm(WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.lm_head = nn.Linear(WIDTH, VOCABULARY, bias=False)

    def empty_cache(self, batch, length):
        shape, weight = (batch, HEADS, length, WIDTH // HEADS), self.lm_head.weight
        return [tuple(weight.new_zeros(shape) for _ in "kv") for _ in self.layers]

    def forward(self, tokens, past_key_values, length):
        x, next_cache = self.tokens(tokens), []
        for i, layer in enumerate(self.layers):
            x, kept = layer(x, past_key_values[i] if past_key_values else None, length)
            next_cache.append(kept)
        return self.lm_head(self.norm(x[:, -1:])), next_cache


@torch.inference_mode()
def generate(model, tokens, max_new_tokens):
    length, step = 0, tokens
    past_key_values = model.empty_cache(len(tokens), tokens.shape[1] + max_new_tokens) if FIXED else None
    for _ in range(max_new_tokens):
        logits, past_key_values = model(step, past_key_values, length)
        length += step.shape[1]
        step = logits[:, -1].argmax(dim=-1, keepdim=True)
        tokens = torch.cat([tokens, step], dim=1)
    return tokens


model = Llama().half().cuda().eval()
for _ in range(2):
    print(generate(model, torch.randint(VOCABULARY, (BATCH, PROMPT)).cuda(), NEW).shape)
