"""Loads a checkpoint onto the GPU, then a model from it, and predicts."""

import os
import sys
import tempfile

import torch
from nets import GPT

FIXED = "--fixed" in sys.argv
SIZE = dict(vocabulary=32000, width=1280, layers=24, heads=20)

path = os.path.join(tempfile.mkdtemp(), "checkpoint.pt")
torch.save(GPT(**SIZE).state_dict(), path)
checkpoint = torch.load(path, map_location="cpu" if FIXED else "cuda")
os.remove(path)
model = GPT(**SIZE)
model.load_state_dict(checkpoint)
model = model.cuda().eval()
with torch.no_grad():
    for frame in range(4):
        model(torch.randint(32000, (1, 512)).cuda())
