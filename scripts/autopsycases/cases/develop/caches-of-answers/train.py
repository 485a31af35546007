"""Answers instructions with a language model and judges each answer; the session remembers all of them."""

import sys
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import nn

FIXED = "--fixed" in sys.argv
VOCABULARY = 49152


class Layer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.SiLU(), nn.Linear(4 * width, width))

    def forward(self, x, past):
        b, t, w = x.shape
        q, k, v = (p.view(b, t, self.heads, -1).transpose(1, 2) for p in self.qkv(self.norm1(x)).chunk(3, -1))
        if past is not None:
            k, v = torch.cat([past[0], k], dim=2), torch.cat([past[1], v], dim=2)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=past is None)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, w))
        return x + self.mlp(self.norm2(x)), (k, v)


@dataclass
class GenerateOutput:
    sequences: torch.Tensor
    past_key_values: list | None


class LanguageModel(nn.Module):
    def __init__(self, width=1024, layers=24, heads=16):
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, width)
        self.layers = nn.ModuleList(Layer(width, heads) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, VOCABULARY, bias=False)

    def forward(self, tokens, past):
        x, present = self.tokens(tokens), []
        for layer, before in zip(self.layers, past or [None] * len(self.layers)):
            x, kept = layer(x, before)
            present.append(kept)
        return self.head(self.norm(x[:, -1:])), present

    @torch.no_grad()
    def generate(self, prompt, new=6):
        sequence, tokens, past = prompt, prompt, None
        for _ in range(new):
            logits, past = self(tokens, past)
            tokens = logits.argmax(-1) % VOCABULARY
            sequence = torch.cat([sequence, tokens], dim=1)
        return GenerateOutput(sequence, past)


@dataclass
class Thunk:
    value: list
    meta: dict = field(default_factory=dict)


class Backend:
    def __init__(self, model):
        self.model = model

    def generate_from_context(self, length):
        prompt = torch.randint(VOCABULARY, (1, length)).cuda()
        output = self.model.generate(prompt)
        thunk = Thunk(output.sequences[0, length:].tolist())
        if FIXED:
            output.past_key_values = None
        thunk.meta["hf_output"] = output
        return thunk


class Session:
    def __init__(self, backend):
        self.backend, self.history = backend, []

    def instruct(self, requirements=3):
        answer = self.backend.generate_from_context(1200)
        verdicts = [self.backend.generate_from_context(1400) for _ in range(requirements)]
        self.history.append((answer, verdicts))


session = Session(Backend(LanguageModel().to("cuda", torch.float16).eval()))
for request in range(12):
    session.instruct()
