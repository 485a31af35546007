"""Tunes a language model on preferences (DPO) beside a frozen copy of itself."""

import copy
import sys

import torch
import torch.nn.functional as F
from nets import GPT

FIXED = "--fixed" in sys.argv


def log_probability(model, tokens):
    logits = model(tokens[:, :-1])
    return -F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten(), reduction="sum")


with torch.device("cuda"):
    model = GPT(vocabulary=32000, width=1280, layers=20, heads=20)
pairs = [(torch.randint(32000, (2, 129)), torch.randint(32000, (2, 129))) for _ in range(3)]
if FIXED:
    with torch.no_grad():
        known = [[log_probability(model, t.cuda()).item() for t in pair] for pair in pairs]
else:
    reference = copy.deepcopy(model).eval().requires_grad_(False)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6)
for step, pair in enumerate(pairs):
    chosen, rejected = (t.cuda() for t in pair)
    if FIXED:
        before = known[step]
    else:
        with torch.no_grad():
            before = [log_probability(reference, t) for t in (chosen, rejected)]
    gain = log_probability(model, chosen) - before[0] - log_probability(model, rejected) + before[1]
    loss = -F.logsigmoid(0.1 * gain)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
