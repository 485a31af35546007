"""Tunes a small language model on pairs of a chosen and a rejected answer (DPO)."""

import copy
import sys

import torch
import torch.nn.functional as F
from nets import GPT
from torch.utils.checkpoint import checkpoint

FIXED = "--fixed" in sys.argv
WORDS, LENGTH, PAIRS = 151_936, 640, 4


def log_probability(model, tokens):
    """Returns the sum of the log-probabilities of each sequence's tokens."""
    labels = tokens[:, 1:]
    if FIXED:
        hidden = model.features(tokens)[:, :-1]

        def part(h, y):
            return -F.cross_entropy(model.head(h).transpose(1, 2), y, reduction="none").sum(-1)

        parts = zip(hidden.chunk(16, dim=1), labels.chunk(16, dim=1))
        return sum(checkpoint(part, h, y, use_reentrant=False) for h, y in parts)
    logits = model(tokens)[:, :-1]
    return torch.gather(logits.log_softmax(-1), 2, labels.unsqueeze(2)).squeeze(2).sum(-1)


policy = GPT(vocabulary=WORDS, width=512, layers=12, heads=8, context=LENGTH).cuda()
reference = copy.deepcopy(policy).eval().requires_grad_(False)
optimizer = torch.optim.AdamW(policy.parameters(), lr=5e-7)
for step in range(3):
    chosen, rejected = (torch.randint(WORDS, (PAIRS, LENGTH)).cuda() for _ in range(2))
    both = torch.cat([chosen, rejected])
    with torch.no_grad():
        of_reference = log_probability(reference, both)
    of_policy = log_probability(policy, both)
    margin = (of_policy - of_reference).chunk(2)
    loss = -F.logsigmoid(0.1 * (margin[0] - margin[1])).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step)
