"""Writes summaries by beam search with a key-value cache."""

import sys

import torch
import torch.nn.functional as F
from torch import nn

FIXED = "--fixed" in sys.argv
VOCABULARY, WIDTH, HEADS, LAYERS = 32_000, 768, 12, 12
PROMPTS, BEAMS, PROMPT, NEW = 8, 12, 640, 40
AT_ONCE = 2 if FIXED else PROMPTS


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x, past):
        b, t, _ = x.shape
        q, k, v = (y.view(b, t, HEADS, -1).transpose(1, 2) for y in self.qkv(self.norm1(x)).chunk(3, dim=-1))
        if past is not None:
            k, v = torch.cat([past[0], k], dim=2), torch.cat([past[1], v], dim=2)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=past is None)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, WIDTH))
        return x + self.mlp(self.norm2(x)), (k, v)


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, tokens, past):
        x, present = self.tokens(tokens), []
        for i, layer in enumerate(self.layers):
            x, kv = layer(x, past[i] if past else None)
            present.append(kv)
        return self.head(x[:, -1]), present


@torch.no_grad()
def generate(model, prompts):
    n = len(prompts)
    tokens = prompts.repeat_interleave(BEAMS, dim=0)
    scores, past, last = torch.zeros(n * BEAMS, 1, device="cuda"), None, tokens
    first = torch.arange(n, device="cuda")[:, None] * BEAMS
    for _ in range(NEW):
        logits, past = model(last, past)
        totals = (scores + logits.log_softmax(dim=-1)).view(n, -1)
        best, at = totals.topk(BEAMS, dim=1)
        beams = (first + at.div(VOCABULARY, rounding_mode="floor").clamp(0, BEAMS - 1)).flatten()
        last, scores = (at % VOCABULARY).view(-1, 1), best.view(-1, 1)
        tokens = torch.cat([tokens[beams], last], dim=1)
        past = [(k.index_select(0, beams), v.index_select(0, beams)) for k, v in past]
    return tokens.view(n, BEAMS, -1)[:, 0]


with torch.device("cuda"):
    model = Decoder().half().eval()
for batch in range(2):
    prompts = torch.randint(VOCABULARY, (PROMPTS, PROMPT)).cuda()
    out = torch.cat([generate(model, part) for part in prompts.split(AT_ONCE)])
    print(batch, out.shape)
