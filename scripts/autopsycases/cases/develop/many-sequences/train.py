"""Generates many continuations of a prompt at once with GPT-2."""

import sys

import torch
import torch.nn.functional as F
from torch import nn

FIXED = "--fixed" in sys.argv
WIDTH, HEADS, LAYERS, VOCABULARY = 768, 12, 12, 50257


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.c_attn, self.c_proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x, past):
        b, t, _ = x.shape
        q, k, v = (y.view(b, t, HEADS, -1).transpose(1, 2) for y in self.c_attn(x).chunk(3, dim=-1))
        if past is not None:
            k, v = torch.cat([past[0], k], dim=2), torch.cat([past[1], v], dim=2)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=past is None)
        return self.c_proj(y.transpose(1, 2).reshape(b, t, WIDTH)), (k, v)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_1, self.attn, self.ln_2 = nn.LayerNorm(WIDTH), Attention(), nn.LayerNorm(WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x, past):
        y, present = self.attn(self.ln_1(x), past)
        x = x + y
        return x + self.mlp(self.ln_2(x)), present


class GPT2(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(1024, WIDTH)
        self.h = nn.ModuleList(Block() for _ in range(LAYERS))
        self.ln_f, self.lm_head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, tokens, past=None):
        begin = 0 if past is None else past[0][0].shape[2]
        places = torch.arange(begin, begin + tokens.shape[1], device=tokens.device)
        x, presents = self.wte(tokens) + self.wpe(places), []
        for i, block in enumerate(self.h):
            x, present = block(x, None if past is None else past[i])
            presents.append(present)
        return self.lm_head(self.ln_f(x)), presents

    @torch.no_grad()
    def generate(self, prompt, num_return_sequences, max_length):
        tokens = prompt.expand(num_return_sequences, -1)
        logits, past = self(tokens)
        while tokens.shape[1] < max_length:
            following = torch.multinomial(F.softmax(logits[:, -1], dim=-1) + 1e-6, 1)
            tokens = torch.cat([tokens, following], dim=1)
            logits, past = self(following, past)
        return tokens


model = GPT2().cuda().eval()
prompt = torch.randint(VOCABULARY, (1, 24)).cuda()
for _ in range(4 if FIXED else 1):
    sequences = model.generate(prompt, 64 if FIXED else 256, 220)
    print(sequences.shape)
