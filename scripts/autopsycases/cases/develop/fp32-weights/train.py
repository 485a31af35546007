"""Loads a language model of 3.8 billion parameters for inference."""

import sys

import torch
from nets import GPT

FIXED = "--fixed" in sys.argv

dtype = torch.bfloat16 if FIXED else torch.float32
with torch.device("meta"):
    model = GPT(vocabulary=200064, width=3072, layers=29, heads=24, context=4096).to(dtype)
model = model.to_empty(device="cuda").eval()
tokens = torch.randint(200064, (1, 128)).cuda()
with torch.no_grad():
    for _ in range(8):
        logits = model(tokens)[:, -1:]
        tokens = torch.cat([tokens, logits.argmax(dim=-1)], dim=1)
