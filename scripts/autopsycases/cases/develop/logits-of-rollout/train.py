"""Tunes a language model by PPO: rewards for what it wrote, and a distance to how it was."""

import copy
import sys

import torch
import torch.nn.functional as F
from nets import GPT
from torch import nn

FIXED = "--fixed" in sys.argv
WORDS, LENGTH, BATCH, PART = 50_257, 256, 64, 4


class WithValue(nn.Module):
    """A language model with a second head that estimates what a text is worth."""

    def __init__(self, base, width):
        super().__init__()
        self.base, self.value = base, nn.Linear(width, 1)

    def forward(self, tokens):
        hidden = self.base.features(tokens)
        return self.base.head(hidden), self.value(hidden).squeeze(-1)


def logprobs_from_logits(logits, labels):
    return torch.gather(F.log_softmax(logits, dim=2), 2, labels.unsqueeze(-1)).squeeze(-1)


class PPOTrainer:
    def __init__(self, model, reference, lr=1e-5):
        self.model, self.reference = model, reference
        self.optimizer = torch.optim.Adam(model.parameters(), lr=lr)

    def batched_forward_pass(self, model, tokens, return_logits=False):
        all_logits, all_logprobs, all_values = [], [], []
        for part in tokens.split(PART):
            logits, values = model(part)
            if return_logits or not FIXED:
                all_logits.append(logits)
            all_values.append(values[:, :-1])
            all_logprobs.append(logprobs_from_logits(logits[:, :-1], part[:, 1:]))
        return (
            torch.cat(all_logprobs),
            torch.cat(all_logits) if all_logits else None,
            torch.cat(all_values),
        )

    def step(self, tokens, scores):
        with torch.no_grad():
            logprobs, _, values = self.batched_forward_pass(self.model, tokens)
            of_reference, _, _ = self.batched_forward_pass(self.reference, tokens)
        rewards = scores.unsqueeze(1) - 0.2 * (logprobs - of_reference)
        for rows in torch.arange(len(tokens)).split(PART):
            logits, value = self.model(tokens[rows])
            new = logprobs_from_logits(logits[:, :-1], tokens[rows][:, 1:])
            ratio = torch.exp(new - logprobs[rows])
            advantage = rewards[rows] - values[rows]
            loss = -(ratio * advantage).mean() + 0.1 * (value[:, :-1] - rewards[rows]).square().mean()
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()


policy = WithValue(GPT(vocabulary=WORDS, width=512, layers=8, heads=8, context=LENGTH), 512).cuda()
reference = copy.deepcopy(policy).eval().requires_grad_(False)
trainer = PPOTrainer(policy, reference)
for step in range(2):
    texts = torch.randint(WORDS, (BATCH, LENGTH)).cuda()
    trainer.step(texts, torch.rand(BATCH).cuda())
    print(step)
