"""Trains a transducer for speech recognition."""

import sys

import torch
import torch.nn.functional as F
from nets import Block
from torch import nn

FIXED = "--fixed" in sys.argv
VOCABULARY = 4233


class Transducer(nn.Module):
    """An encoder of frames, a network over tokens, and what joins them."""

    def __init__(self, width=512, layers=8):
        super().__init__()
        self.frames = nn.Linear(4 * 83, width)
        self.blocks = nn.ModuleList(Block(width, 8, causal=False) for _ in range(layers))
        self.tokens = nn.Embedding(VOCABULARY, width)
        self.predict = nn.LSTM(width, width, batch_first=True)
        self.join = nn.Linear(width, VOCABULARY)

    def encode(self, frames, tokens):
        x = self.frames(frames)
        for block in self.blocks:
            x = block(x)
        return x, self.predict(self.tokens(tokens))[0]

    def forward(self, frames, tokens):
        x, y = self.encode(frames, tokens)
        return self.join(torch.tanh(x[:, :, None] + y[:, None]))


def transducer_loss(joint, tokens):
    """As costly as the real one, which also takes a log-softmax of all pairs."""
    scores = joint.log_softmax(dim=-1)
    return (
        -scores[..., 0].mean()
        - scores.gather(3, tokens[:, None, :, None].expand(-1, scores.shape[1], -1, 1)).mean()
    )


model = Transducer().cuda()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
for step in range(3):
    frames, tokens = torch.rand(16, 455, 4 * 83).cuda(), torch.randint(VOCABULARY, (16, 24)).cuda()
    optimizer.zero_grad()
    if FIXED:
        x, y = model.encode(frames, tokens)
        one, two = x.detach().requires_grad_(), y.detach().requires_grad_()
        for k in range(16):
            joint = model.join(torch.tanh(one[k : k + 1, :, None] + two[k : k + 1, None]))
            (transducer_loss(joint, tokens[k : k + 1]) / 16).backward()
        torch.autograd.backward([x, y], [one.grad, two.grad])
    else:
        transducer_loss(model(frames, tokens), tokens).backward()
    optimizer.step()
