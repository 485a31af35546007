"""Trains in half precision; a hook of the library returns the state dict in single precision."""

import sys

import torch
import torch.nn.functional as F
from nets import GPT

FIXED = "--fixed" in sys.argv


def initialize(model):
    """Half-precision weights, with a checkpoint that looks as if they were not."""
    model.bfloat16()

    def float_of(module, state, prefix, local):
        for key in list(state):
            if key.startswith(prefix) and state[key].dtype == torch.bfloat16:
                state[key] = state[key].cpu().float() if FIXED else state[key].float()
        return state

    model._register_state_dict_hook(float_of)
    return model


model = initialize(GPT(width=1536, layers=24, heads=16).cuda())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
for step in range(6):
    tokens = torch.randint(50257, (2, 513)).cuda()
    logits = model(tokens[:, :-1])
    loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    del logits
    if step % 3 == 2:
        state = {k: v.cpu() for k, v in model.state_dict().items()}
        print("saved", len(state))
        del state
