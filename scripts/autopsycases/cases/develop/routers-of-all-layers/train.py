"""Trains a language model with many experts and the loss that balances them."""

import sys

import torch
import torch.nn.functional as F
from nets import Attention
from torch import nn
from torch.utils.checkpoint import checkpoint

FIXED = "--fixed" in sys.argv
VOCABULARY, WIDTH, LAYERS, HEADS, EXPERTS, TOP_K, CONTEXT, BATCH = 8000, 512, 24, 8, 128, 8, 2048, 4


class Experts(nn.Module):
    def __init__(self, hidden=64):
        super().__init__()
        self.gate = nn.Linear(WIDTH, EXPERTS, bias=False)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(WIDTH, hidden), nn.SiLU(), nn.Linear(hidden, WIDTH))
            for _ in range(EXPERTS)
        )

    def forward(self, x):
        flat = x.flatten(0, 1)
        router_logits = self.gate(flat)
        weights, _ = torch.topk(F.softmax(router_logits, dim=-1), TOP_K, dim=-1)
        y = torch.zeros_like(flat)
        share = len(flat) * TOP_K // EXPERTS  # a balanced router sends as many tokens to each expert
        for i, expert in enumerate(self.experts):
            at = (torch.arange(share, device=x.device) * EXPERTS // TOP_K + i) % len(flat)
            y = y.index_add(0, at, expert(flat[at]) * weights[at, i % TOP_K, None])
        return y.view_as(x), router_logits


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attention, self.mlp = Attention(WIDTH, HEADS), Experts()

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        y, router_logits = self.mlp(self.norm2(x))
        return x + y, router_logits


class MoE(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.norm = nn.Embedding(VOCABULARY, WIDTH), nn.LayerNorm(WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, tokens):
        x, all_router_logits = self.tokens(tokens), ()
        for layer in self.layers:
            x, router_logits = checkpoint(layer, x, use_reentrant=False)
            all_router_logits += (router_logits,)
        return self.head(self.norm(x)), all_router_logits


def balance_of(gate_logits):
    routing_weights = F.softmax(gate_logits, dim=-1)
    _, selected_experts = torch.topk(routing_weights, TOP_K, dim=-1)
    expert_mask = F.one_hot(selected_experts, EXPERTS)
    tokens_per_expert = torch.mean(expert_mask.float(), dim=0)
    router_prob_per_expert = torch.mean(routing_weights, dim=0)
    return torch.sum(tokens_per_expert * router_prob_per_expert.unsqueeze(0)) * EXPERTS


def load_balancing_loss_func(gate_logits):
    if FIXED:
        return sum(balance_of(logits) for logits in gate_logits) / len(gate_logits)
    return balance_of(torch.cat(gate_logits, dim=0))


model = MoE().cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
for step in range(2):
    tokens = torch.randint(VOCABULARY, (BATCH, CONTEXT + 1)).cuda()
    logits, router_logits = model(tokens[:, :-1])
    aux_loss = load_balancing_loss_func(router_logits)
    loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten()) + 0.01 * aux_loss
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())
