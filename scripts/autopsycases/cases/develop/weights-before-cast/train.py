"""Embeds proteins with a pretrained language model in bfloat16."""

import sys

import torch
from nets import Encoder

FIXED = "--fixed" in sys.argv


def from_pretrained(device, dtype):
    """Loads a checkpoint, which is in float32."""
    with torch.device("meta"):
        model = Encoder(vocabulary=64, width=1280, layers=20, heads=20, context=1024)
    model = model.to_empty(device="cpu").eval()
    return model.to(dtype).to(device) if FIXED else model.to(device).to(dtype)


model = from_pretrained("cuda", torch.bfloat16)
with torch.inference_mode():
    for i in range(4):
        tokens = torch.randint(64, (2, 512)).cuda()
        print(i, tuple(model.features(tokens).mean(dim=1).shape))
