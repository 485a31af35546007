"""Reads a text in pieces with a recurrent language model, and hands its state on to the next piece."""

import sys

import torch
import torch.nn.functional as F
from torch import nn

FIXED = "--fixed" in sys.argv


class Mixer(nn.Module):
    """A layer that mixes each token with a decaying state, and then its channels."""

    def __init__(self, width):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.key, self.value, self.receptance = (nn.Linear(width, width, bias=False) for _ in range(3))
        self.out = nn.Linear(width, width, bias=False)
        self.decay = nn.Parameter(torch.zeros(width))
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x, state):
        h = self.norm1(x)
        k, v, r = self.key(h).exp(), self.value(h), self.receptance(h).sigmoid()
        mixed = []
        for t in range(x.shape[1]):
            state = state * self.decay.sigmoid() + k[:, t] * v[:, t]
            mixed.append(state)
        x = x + self.out(r * torch.stack(mixed, dim=1))
        return x + self.down(F.relu(self.up(self.norm2(x))).square()), state


class Recurrent(nn.Module):
    def __init__(self, vocabulary=50277, width=1024, layers=24):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.layers = nn.ModuleList(Mixer(width) for _ in range(layers))
        self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens, state=None):
        x = self.tokens(tokens)
        state = state or [torch.zeros_like(x[:, 0]) for _ in self.layers]
        after = []
        for layer, s in zip(self.layers, state):
            x, s = layer(x, s)
            after.append(s)
        return self.head(x), after


def read(model, pieces):
    state = None
    for piece in range(pieces):
        tokens = torch.randint(50277, (1, 13)).cuda()
        logits, state = model(tokens, state)
        print(piece, logits[0, -1].argmax().item())


model = Recurrent().cuda().eval()
if FIXED:
    with torch.no_grad():
        read(model, 200)
else:
    read(model, 200)
