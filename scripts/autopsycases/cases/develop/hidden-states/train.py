"""Collects what each layer of an encoder makes of sentences, one at a time."""

import sys

import torch
from nets import Encoder

FIXED = "--fixed" in sys.argv


class States(Encoder):
    """An encoder that returns what each of its layers made."""

    def forward(self, tokens):
        x = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1], device=tokens.device))
        states = [x]
        for block in self.blocks:
            x = block(x)
            states.append(x)
        return states


model = States().cuda().eval()

encoded = []
with torch.set_grad_enabled(not FIXED):
    for sentence in range(120):
        tokens = torch.randint(30522, (1, 64 + 37 * sentence % 400)).cuda()
        states = model(tokens)
        encoded.append([s.cpu() for s in states] if FIXED else states)
