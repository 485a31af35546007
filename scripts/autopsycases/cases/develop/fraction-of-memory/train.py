"""Scores texts with a language model while PyTorch may use only a part of the GPU."""

import sys

import torch
import torch.nn.functional as F
from nets import GPT

FIXED = "--fixed" in sys.argv
VOCABULARY, CONTEXT, BATCH = 32_000, 1024, 8

if not FIXED:
    torch.cuda.set_per_process_memory_fraction(0.4)
model = GPT(VOCABULARY, width=2048, layers=18, heads=16, context=CONTEXT).cuda().eval()
with torch.inference_mode():
    for batch in range(4):
        tokens = torch.randint(VOCABULARY, (BATCH, CONTEXT + 1)).cuda()
        logits = model(tokens[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        print(batch, loss.item())
