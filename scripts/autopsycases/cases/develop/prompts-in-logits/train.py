"""Tunes a language model with GRPO on completions that a server of its own has generated."""

import sys

import torch
from nets import GPT
from torch import nn
from torch.utils.checkpoint import checkpoint

FIXED = "--fixed" in sys.argv
VOCABULARY = 151_936
PROMPT, COMPLETION, GENERATIONS = 1024, 256, 16


class Checkpointed(nn.Module):
    def __init__(self, block):
        super().__init__()
        self.block = block

    def forward(self, x):
        return checkpoint(self.block, x, use_reentrant=False)


class CausalLM(nn.Module):
    def __init__(self):
        super().__init__()
        self.model = GPT(VOCABULARY, width=896, layers=24, heads=14, context=2048)
        self.model.blocks = nn.ModuleList(Checkpointed(block) for block in self.model.blocks)
        self.lm_head = self.model.head

    def forward(self, input_ids, num_logits_to_keep=0):
        hidden = self.model.features(input_ids)
        return self.lm_head(hidden[:, -num_logits_to_keep:])


def selective_log_probs(logits, input_ids):
    """The log probabilities of the tokens, row by row to keep the peak low."""
    per_token_logps = []
    for logits_row, input_ids_row in zip(logits, input_ids):
        log_probs = logits_row.log_softmax(dim=-1)
        token_log_prob = torch.gather(log_probs, dim=1, index=input_ids_row.unsqueeze(1)).squeeze(1)
        per_token_logps.append(token_log_prob)
    return torch.stack(per_token_logps)


class GRPOTrainer:
    def __init__(self, model, ref_model):
        self.model, self.ref_model = model, ref_model
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6)

    def get_per_token_logps(self, model, input_ids, logits_to_keep):
        if FIXED:
            logits = model(input_ids, num_logits_to_keep=logits_to_keep + 1)[:, :-1]
            return selective_log_probs(logits, input_ids[:, -logits_to_keep:])
        logits = model(input_ids)[:, :-1]
        return selective_log_probs(logits, input_ids[:, 1:])[:, -logits_to_keep:]

    def generate(self):
        prompt = torch.randint(VOCABULARY, (1, PROMPT)).expand(GENERATIONS, -1)
        return torch.cat([prompt, torch.randint(VOCABULARY, (GENERATIONS, COMPLETION))], dim=1)

    def compute_loss(self, input_ids, rewards):
        per_token_logps = self.get_per_token_logps(self.model, input_ids, COMPLETION)
        with torch.inference_mode():
            ref_per_token_logps = self.get_per_token_logps(self.ref_model, input_ids, COMPLETION)
        difference = ref_per_token_logps - per_token_logps
        per_token_kl = torch.exp(difference) - difference - 1
        advantages = (rewards - rewards.mean()) / (rewards.std() + 1e-4)
        per_token_loss = torch.exp(per_token_logps - per_token_logps.detach()) * advantages.unsqueeze(1)
        return -(per_token_loss - 0.04 * per_token_kl).mean()

    def train(self, steps):
        for step in range(steps):
            input_ids, rewards = self.generate().cuda(), torch.rand(GENERATIONS).cuda()
            loss = self.compute_loss(input_ids, rewards)
            loss.backward()
            self.optimizer.step()
            self.optimizer.zero_grad()
            print(step)


def load():
    with torch.device("meta"):
        model = CausalLM().bfloat16()
    return model.to_empty(device="cuda")


GRPOTrainer(load(), load().requires_grad_(False).eval()).train(steps=3)
