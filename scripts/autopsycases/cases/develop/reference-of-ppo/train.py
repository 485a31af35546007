"""Trains a language model with PPO against a copy of itself."""

import copy
import sys

import torch
import torch.nn.functional as F
from nets import GPT
from torch import nn

FIXED = "--fixed" in sys.argv
VOCABULARY, WIDTH, LAYERS, QUERY, RESPONSE, BATCH, RANK = 50_257, 1280, 24, 32, 32, 8, 16


class LoRA(nn.Module):
    def __init__(self, base):
        super().__init__()
        self.base, self.enabled = base.requires_grad_(False), True
        self.a, self.b = (
            nn.Linear(base.in_features, RANK, bias=False),
            nn.Linear(RANK, base.out_features, bias=False),
        )

    def forward(self, x):
        y = self.base(x)
        return y + self.b(self.a(x)) if self.enabled else y


class ModelWithValueHead(nn.Module):
    def __init__(self):
        super().__init__()
        self.pretrained_model = GPT(VOCABULARY, WIDTH, LAYERS, 20, context=QUERY + RESPONSE)
        self.v_head = nn.Linear(WIDTH, 1)
        if FIXED:
            self.pretrained_model.requires_grad_(False)
            for block in self.pretrained_model.blocks:
                block.attention.qkv = LoRA(block.attention.qkv)

    def enable_adapters(self, enabled):
        for m in self.modules():
            if isinstance(m, LoRA):
                m.enabled = enabled

    def forward(self, tokens):
        x = self.pretrained_model.features(tokens)
        return self.pretrained_model.head(x), self.v_head(x).squeeze(-1)


class PPOTrainer:
    def __init__(self, model):
        self.model = model
        self.ref_model = None if FIXED else copy.deepcopy(model).eval().requires_grad_(False)
        self.optimizer = torch.optim.Adam((p for p in model.parameters() if p.requires_grad), lr=1e-5)

    @torch.no_grad()
    def generate(self, queries):
        tokens = queries
        for _ in range(RESPONSE):
            logits, _ = self.model(tokens)
            tokens = torch.cat([tokens, logits[:, -1].argmax(dim=-1, keepdim=True)], dim=1)
        return tokens

    def logprobs_of(self, model, tokens):
        logits, values = model(tokens[:, :-1])
        logprobs = F.log_softmax(logits[:, QUERY - 1 :], dim=-1)
        return logprobs.gather(2, tokens[:, QUERY:, None])[..., 0], values[:, QUERY - 1 :]

    @torch.no_grad()
    def ref_logprobs_of(self, tokens):
        if self.ref_model is not None:
            return self.logprobs_of(self.ref_model, tokens)[0]
        self.model.enable_adapters(False)
        logprobs, _ = self.logprobs_of(self.model, tokens)
        self.model.enable_adapters(True)
        return logprobs

    def step(self, tokens, scores):
        with torch.no_grad():
            old_logprobs, values = self.logprobs_of(self.model, tokens)
            rewards = -0.2 * (old_logprobs - self.ref_logprobs_of(tokens))
            rewards[:, -1] += scores
            returns = rewards.flip(1).cumsum(1).flip(1)
            advantages = returns - values
        for _ in range(2):
            logprobs, vpreds = self.logprobs_of(self.model, tokens)
            ratio = (logprobs - old_logprobs).exp()
            loss = -torch.min(ratio * advantages, ratio.clamp(0.8, 1.2) * advantages).mean()
            loss = loss + 0.1 * F.mse_loss(vpreds, returns)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
        return loss.item()


trainer = PPOTrainer(ModelWithValueHead().cuda())
for epoch in range(2):
    tokens = trainer.generate(torch.randint(VOCABULARY, (BATCH, QUERY)).cuda())
    print(epoch, trainer.step(tokens, torch.randn(BATCH).cuda()))
