"""Trains adapters on a quantised language model with pairs of answers, and stores metrics of each step."""

import sys
from collections import defaultdict

import torch
import torch.nn.functional as F
from nets import GPT
from torch import nn

FIXED = "--fixed" in sys.argv
VOCABULARY = 8000


class Dequantised(torch.autograd.Function):
    """A linear layer with weights of eight bits; like that of a well-known library, it keeps what its
    backward needs as attributes of its context."""

    @staticmethod
    def forward(ctx, x, weight, scale):
        ctx.tensors = (x, weight, scale)
        return F.linear(x, weight.to(x.dtype) * scale)

    @staticmethod
    def backward(ctx, grad):
        x, weight, scale = ctx.tensors
        return grad @ (weight.to(grad.dtype) * scale), None, None


class AdaptedLinear(nn.Module):
    def __init__(self, linear, rank=8):
        super().__init__()
        self.register_buffer("weight", linear.weight.detach().mul(127).to(torch.int8))
        self.register_buffer("scale", torch.full((linear.out_features, 1), 1 / 127))
        self.a = nn.Linear(linear.in_features, rank, bias=False)
        self.b = nn.Linear(rank, linear.out_features, bias=False)

    def forward(self, x):
        return Dequantised.apply(x, self.weight, self.scale) + self.b(self.a(x))


def adapt(model):
    model.requires_grad_(False)
    for block in model.blocks:
        block.attention.qkv = AdaptedLinear(block.attention.qkv)
        block.attention.out = AdaptedLinear(block.attention.out)
        block.mlp[0], block.mlp[2] = AdaptedLinear(block.mlp[0]), AdaptedLinear(block.mlp[2])
    return model


class CPOTrainer:
    def __init__(self, model):
        self.model, self.stored = model, defaultdict(list)
        self.optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-4)

    def log_probs(self, logits, tokens):
        chosen = logits[:, :-1].log_softmax(-1).gather(2, tokens[:, 1:, None])
        return chosen.squeeze(2).sum(-1)

    def get_batch_loss_metrics(self, tokens):
        logits = self.model(tokens)
        chosen, rejected = self.log_probs(logits, tokens).chunk(2)
        half = len(tokens) // 2
        nll = F.cross_entropy(logits[:half, :-1].flatten(0, 1), tokens[:half, 1:].flatten())
        loss = -F.logsigmoid(0.1 * (chosen - rejected)).mean() + nll
        metrics = {"rewards/chosen": chosen.detach().mean().cpu()}
        metrics["nll_loss"] = (nll.detach() if FIXED else nll).cpu().mean()
        return loss, metrics

    def train(self, steps):
        for _ in range(steps):
            tokens = torch.randint(VOCABULARY, (8, 384)).cuda()
            loss, metrics = self.get_batch_loss_metrics(tokens)
            for name, value in metrics.items():
                self.stored[name].append(value)
            loss.backward()
            self.optimizer.step()
            self.optimizer.zero_grad()


CPOTrainer(adapt(GPT(VOCABULARY, width=512, layers=8, heads=8)).cuda()).train(40)
