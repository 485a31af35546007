"""Tunes a language model with low-rank adapters and an embedding that gets new tokens."""

import sys

import torch
import torch.nn.functional as F
from nets import GPT
from torch import nn
from torch.utils.checkpoint import checkpoint

FIXED = "--fixed" in sys.argv
VOCABULARY, NEW = 256_000, 6


class LoraLinear(nn.Module):
    def __init__(self, base, r=16):
        super().__init__()
        self.base_layer = base
        self.lora_A = nn.Linear(base.in_features, r, bias=False)
        self.lora_B = nn.Linear(r, base.out_features, bias=False)

    def forward(self, x):
        return self.base_layer(x) + self.lora_B(self.lora_A(x))


class ModulesToSaveWrapper(nn.Module):
    """The original module, frozen, and a copy of it that is trained."""

    def __init__(self, original):
        super().__init__()
        self.original_module = original
        self.modules_to_save = nn.Embedding.from_pretrained(original.weight.detach().clone(), freeze=False)

    def forward(self, ids):
        return self.modules_to_save(ids)


class TrainableTokens(nn.Module):
    def __init__(self, original, token_indices):
        super().__init__()
        self.original_module, self.register = original, {t: i for i, t in enumerate(token_indices)}
        self.first = token_indices[0]
        self.delta = nn.Parameter(original.weight[token_indices].detach().clone())

    def forward(self, ids):
        x = self.original_module(ids)
        new = (ids >= self.first).unsqueeze(-1)
        return torch.where(new, F.embedding((ids - self.first).clamp(min=0), self.delta), x)


class Checkpointed(nn.Module):
    def __init__(self, block):
        super().__init__()
        self.block = block

    def forward(self, x):
        return checkpoint(self.block, x, use_reentrant=False)


def get_peft_model(model):
    model.requires_grad_(False)
    for block in model.blocks:
        block.attention.qkv = LoraLinear(block.attention.qkv)
        block.attention.out = LoraLinear(block.attention.out)
    if FIXED:
        model.tokens = TrainableTokens(model.tokens, list(range(VOCABULARY - NEW, VOCABULARY)))
    else:
        model.tokens = ModulesToSaveWrapper(model.tokens)
    model.blocks = nn.ModuleList(Checkpointed(block) for block in model.blocks)
    return model


model = get_peft_model(GPT(VOCABULARY, width=1024, layers=12, heads=16, context=512)).cuda().train()
trained = [p for p in model.parameters() if p.requires_grad]
optimizer = torch.optim.AdamW(trained, lr=2e-4)
for step in range(4):
    input_ids = torch.randint(VOCABULARY, (1, 256)).cuda()
    logits = model(input_ids)
    loss = F.cross_entropy(logits[:, :-1].flatten(0, 1), input_ids[:, 1:].flatten())
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(step, loss.item())
