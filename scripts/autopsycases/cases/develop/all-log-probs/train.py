"""Fine-tunes a policy on completions by the log-probabilities of their tokens."""

import sys

import torch
from nets import GPT

FIXED = "--fixed" in sys.argv


def selective_log_softmax(logits, index):
    if FIXED:
        chosen = torch.gather(logits, -1, index.unsqueeze(-1)).squeeze(-1)
        return chosen - torch.stack([torch.logsumexp(row, dim=-1) for row in logits])
    log_probs = logits.log_softmax(dim=-1)
    return torch.gather(log_probs, -1, index.unsqueeze(-1)).squeeze(-1)


policy = GPT(vocabulary=128_256, width=512, layers=8, heads=8, context=640).cuda()
reference = GPT(vocabulary=128_256, width=512, layers=8, heads=8, context=640).cuda().requires_grad_(False)
optimizer = torch.optim.AdamW(policy.parameters(), lr=1e-6)
prompt, completion = 128, 384


def log_probs_of(model, tokens):
    logits = model(tokens)[:, prompt - 1 : -1]
    return selective_log_softmax(logits, tokens[:, prompt:])


for step in range(3):
    tokens = torch.randint(128_256, (8, prompt + completion)).cuda()
    advantages = torch.randn(8, 1).cuda()
    with torch.no_grad():
        base = log_probs_of(reference, tokens)
    own = log_probs_of(policy, tokens)
    kl = torch.exp(base - own) - (base - own) - 1
    loss = -(torch.exp(own - own.detach()) * advantages - 0.04 * kl).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step)
