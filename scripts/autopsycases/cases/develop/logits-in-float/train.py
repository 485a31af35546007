"""Reads prompts with a language model of a large vocabulary before it goes on writing."""

import sys

import torch
from nets import Block
from torch import nn

FIXED = "--fixed" in sys.argv
VOCABULARY, WIDTH = 128256, 1536


class CausalLM(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed_tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.layers = nn.ModuleList(Block(WIDTH, 16) for _ in range(12))
        self.norm = nn.LayerNorm(WIDTH)
        self.lm_head = nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, tokens):
        hidden = self.embed_tokens(tokens)
        for layer in self.layers:
            hidden = layer(hidden)
        hidden = self.norm(hidden)
        if FIXED:
            return self.lm_head(hidden[:, -1:])
        logits = self.lm_head(hidden)
        logits = logits.float()
        return logits


def generate(model, tokens, new):
    for _ in range(new):
        logits = model(tokens)
        following = logits[:, -1].argmax(dim=-1, keepdim=True)
        tokens = torch.cat([tokens, following], dim=1)
    return tokens


model = CausalLM().cuda().half().eval()
with torch.no_grad():
    for length in (512, 1024, 2048):
        print(generate(model, torch.randint(VOCABULARY, (4, length)).cuda(), 3).shape)
