"""Generates long texts with a state-space model, whose decoding keeps the scores of all tokens."""

import sys
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn

FIXED = "--fixed" in sys.argv
VOCABULARY = 50_280


class Mixer(nn.Module):
    def __init__(self, width, expand=2, states=16, kernel=4):
        super().__init__()
        inner = expand * width
        self.norm = nn.LayerNorm(width)
        self.in_proj = nn.Linear(width, 2 * inner, bias=False)
        self.x_proj = nn.Linear(inner, 2 * states + 1, bias=False)
        self.conv = nn.Parameter(torch.randn(inner, kernel))
        self.decay = nn.Parameter(torch.rand(inner, states))
        self.out_proj = nn.Linear(inner, width, bias=False)

    def allocate(self, batch):
        inner, states = self.decay.shape
        kernel = self.conv.shape[1]
        return (
            self.conv.new_zeros(batch, inner, kernel),
            self.conv.new_zeros(batch, inner, states),
        )

    def step(self, hidden, conv_state, ssm_state):
        x, z = self.in_proj(self.norm(hidden)).chunk(2, dim=-1)
        conv_state.copy_(torch.roll(conv_state, shifts=-1, dims=-1))
        conv_state[:, :, -1] = x
        x = F.silu((conv_state * self.conv).sum(dim=-1))
        b, c, dt = self.x_proj(x).split([16, 16, 1], dim=-1)
        ssm_state.copy_(ssm_state * self.decay + (x * dt)[:, :, None] * b[:, None])
        y = (ssm_state * c[:, None]).sum(dim=-1)
        return hidden + self.out_proj(y * F.silu(z))


class Mamba(nn.Module):
    def __init__(self, width=768, layers=12):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, width)
        self.layers = nn.ModuleList(Mixer(width) for _ in range(layers))
        self.norm, self.lm_head = (
            nn.LayerNorm(width),
            nn.Linear(width, VOCABULARY, bias=False),
        )

    def forward(self, tokens, states):
        x = self.embedding(tokens)
        for layer, (conv_state, ssm_state) in zip(self.layers, states):
            x = layer.step(x, conv_state, ssm_state)
        return self.lm_head(self.norm(x))


@dataclass
class DecodeOutput:
    sequences: torch.Tensor
    scores: list | None


@torch.inference_mode()
def decode(prompt, model, max_length, output_scores=False):
    states = [layer.allocate(len(prompt)) for layer in model.layers]
    for token in prompt.unbind(dim=1):
        logits = model(token, states)
    scores, sequences = [], [prompt]
    while len(sequences) < max_length:
        if FIXED and not output_scores:
            scores = [logits]
        else:
            scores.append(logits)
        tokens = torch.softmax(scores[-1], dim=-1).argmax(dim=-1) % VOCABULARY
        sequences.append(tokens[:, None])
        logits = model(tokens, states)
    return DecodeOutput(torch.cat(sequences, dim=1), scores if output_scores else None)


model = Mamba().to("cuda", torch.float16).eval()
for batch in range(2):
    prompts = torch.randint(VOCABULARY, (128, 16)).cuda()
    texts = decode(prompts, model, max_length=500)
