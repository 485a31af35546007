"""Scores rollouts with the reference model of a PPO training, many rows at a time."""

import sys

import torch
from nets import GPT

FIXED = "--fixed" in sys.argv
WORDS, LENGTH, ROWS, PART = 100_000, 512, 24, 2


def selected_logprobs(logits, labels):
    """Returns the log-probability of each label, with the sum of exponentials taken by hand."""
    largest = logits.amax(-1, keepdim=True)
    exponentials = torch.exp(logits - largest)
    denominator = exponentials.sum(-1, keepdim=True)
    chosen = logits.gather(-1, labels.unsqueeze(-1))
    return (chosen - largest - denominator.log()).squeeze(-1)


def next_token_logprobs(model, rows):
    logits = model(rows)[:, :-1].float()
    return selected_logprobs(logits, rows[:, 1:])


@torch.no_grad()
def score_rows(model, rows):
    if FIXED:
        return torch.cat([next_token_logprobs(model, part) for part in rows.split(PART)])
    return next_token_logprobs(model, rows)


reference = GPT(vocabulary=WORDS, width=384, layers=8, heads=6, context=LENGTH).cuda().eval()
for batch in range(3):
    rollouts = torch.randint(WORDS, (ROWS, LENGTH)).cuda()
    print(batch, score_rows(reference, rollouts).shape)
