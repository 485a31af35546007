"""Rolls a weather model out for a few steps under autocast; its weights are fp32."""

import sys

import torch
from nets import GPT

FIXED = "--fixed" in sys.argv

with torch.device("cuda"):
    model = GPT(vocabulary=4096, width=2048, layers=24, heads=16).eval()
with torch.no_grad(), torch.autocast("cuda", torch.float16, cache_enabled=not FIXED):
    for forecast in range(3):
        state = torch.randint(4096, (4, 1024)).cuda()
        for hour in range(2):
            state = model(state).argmax(dim=-1)
print(state.shape)
