"""Tunes adapters of a language model with a micro-batch of one, and evaluates every few steps."""

import sys
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from nets import GPT
from torch import nn
from torch.utils.checkpoint import checkpoint

FIXED = "--fixed" in sys.argv
WORDS = 128_256


@dataclass
class TrainingArguments:
    per_device_train_batch_size: int = 8
    per_device_eval_batch_size: int = 8
    gradient_accumulation_steps: int = 1
    eval_steps: int = 2


class LoraLinear(nn.Module):
    def __init__(self, base, rank=32):
        super().__init__()
        self.base = base
        self.lora_a = nn.Linear(base.in_features, rank, bias=False)
        self.lora_b = nn.Linear(rank, base.out_features, bias=False)

    def forward(self, x):
        return self.base(x) + self.lora_b(self.lora_a(x))


class Checkpointed(nn.Module):
    def __init__(self, block):
        super().__init__()
        self.block = block

    def forward(self, x):
        if not torch.is_grad_enabled():
            return self.block(x)
        return checkpoint(self.block, x, use_reentrant=False)


class CausalLM(nn.Module):
    def __init__(self):
        super().__init__()
        model = GPT(vocabulary=WORDS, width=2048, layers=16, heads=32, context=2048)
        self.model = model.requires_grad_(False)
        for block in self.model.blocks:
            block.attention.qkv = LoraLinear(block.attention.qkv)
        self.model.blocks = nn.ModuleList(Checkpointed(block) for block in self.model.blocks)

    def forward(self, tokens):
        logits = self.model(tokens).float()
        loss = F.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())
        return loss, logits


class Trainer:
    def __init__(self, model, args):
        self.model, self.args = model, args
        self.optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=2e-5)

    def batches(self, size, count):
        for _ in range(count):
            yield torch.randint(WORDS, (size, 2048)).cuda()

    def training_step(self, tokens):
        self.model.train()
        loss, _ = self.model(tokens)
        (loss / self.args.gradient_accumulation_steps).backward()

    def train(self, steps):
        accumulated = self.args.gradient_accumulation_steps
        batches = self.batches(self.args.per_device_train_batch_size, steps * accumulated)
        for micro, tokens in enumerate(batches, 1):
            self.training_step(tokens)
            if micro % accumulated == 0:
                self.optimizer.step()
                self.optimizer.zero_grad()
            if micro % (accumulated * self.args.eval_steps) == 0:
                print(micro, self.evaluate())

    def prediction_step(self, tokens):
        with torch.no_grad():
            loss, logits = self.model(tokens)
        return loss.detach()

    def evaluate(self):
        self.model.eval()
        losses = []
        for tokens in self.batches(self.args.per_device_eval_batch_size, 3):
            losses.append(self.prediction_step(tokens))
        return torch.stack(losses).mean()


micro_batch_size = 1
args = TrainingArguments(per_device_train_batch_size=micro_batch_size, gradient_accumulation_steps=4)
if FIXED:
    args.per_device_eval_batch_size = micro_batch_size
with torch.device("meta"):
    model = CausalLM().bfloat16()
Trainer(model.to_empty(device="cuda"), args).train(steps=4)
