"""Trains a language model with rewards: computes log probabilities and entropies of long responses."""

import sys

import torch
import torch.nn.functional as F
from nets import GPT
from torch.utils.checkpoint import checkpoint

FIXED = "--fixed" in sys.argv
VOCABULARY, CONTEXT, CHUNK = 151_936, 8192, 1024


def of_rows(logits, tokens):
    log_probs = F.log_softmax(logits.float(), dim=-1)
    entropy = -(log_probs.exp() * log_probs).sum(dim=-1)
    return log_probs.gather(-1, tokens[:, None])[:, 0], entropy


def calculate_log_probs_and_entropy(logits, tokens, chunk_size):
    if not FIXED:
        return of_rows(logits, tokens)
    pieces = [
        checkpoint(of_rows, *rows, use_reentrant=False)
        for rows in zip(logits.split(chunk_size), tokens.split(chunk_size))
    ]
    return tuple(torch.cat(p) for p in zip(*pieces))


model = GPT(VOCABULARY, width=896, layers=12, heads=14, context=CONTEXT).bfloat16().cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6)
for step in range(2):
    response = torch.randint(VOCABULARY, (CONTEXT,)).cuda()
    advantages = torch.randn(CONTEXT - 1).cuda()
    with torch.no_grad():
        logits = model(response[None, :-1])[0]
        old_log_probs, _ = calculate_log_probs_and_entropy(logits, response[1:], CHUNK)
        del logits
    logits = model(response[None, :-1])[0]
    log_probs, entropy = calculate_log_probs_and_entropy(logits, response[1:], CHUNK)
    ratio = (log_probs - old_log_probs).exp()
    loss = -torch.min(ratio * advantages, ratio.clamp(0.8, 1.2) * advantages).mean() - 0.01 * entropy.mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())
