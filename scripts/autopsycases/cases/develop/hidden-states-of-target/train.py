"""Trains a draft model on the hidden states of three layers of a large frozen one."""

import sys

import torch
import torch.nn.functional as F
from nets import GPT, Block
from torch import nn

FIXED = "--fixed" in sys.argv
VOCABULARY, WIDTH, LAYERS, CONTEXT, BATCH = 8_000, 1024, 40, 2048, 24
WANTED = (1, LAYERS // 2, LAYERS - 3)


class Target(GPT):
    """A language model that returns the hidden states of its layers."""

    def forward(self, tokens, layers=None):
        x = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1], device=tokens.device))
        hidden_states = ()
        for i, block in enumerate(self.blocks):
            if layers is None or i in layers:
                hidden_states += (x,)
            x = block(x)
        return self.norm(x), hidden_states


class Draft(nn.Module):
    def __init__(self):
        super().__init__()
        self.join = nn.Linear(3 * WIDTH, WIDTH)
        self.block = Block(WIDTH, 16)

    def forward(self, hidden):
        return self.block(self.join(hidden))


target = Target(VOCABULARY, width=WIDTH, layers=LAYERS, heads=16, context=CONTEXT)
target = target.cuda().half().eval().requires_grad_(False)
draft = Draft().cuda().half()
optimizer = torch.optim.AdamW(draft.parameters(), lr=1e-4)
for step in range(4):
    tokens = torch.randint(VOCABULARY, (BATCH, CONTEXT)).cuda()
    with torch.no_grad():
        last, hidden_states = target(tokens, WANTED if FIXED else None)
    wanted = hidden_states if FIXED else [hidden_states[i] for i in WANTED]
    loss = F.mse_loss(draft(torch.cat(list(wanted), dim=-1)), last)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())
