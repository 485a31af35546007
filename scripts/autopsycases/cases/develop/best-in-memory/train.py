"""Fine-tunes a classifier of texts and keeps the best of its epochs."""

import copy
import os
import sys
import tempfile

import torch
import torch.nn.functional as F
from nets import Encoder

FIXED = "--fixed" in sys.argv

model = Encoder(width=1024, layers=24, heads=16, classes=5).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5)
path = os.path.join(tempfile.mkdtemp(), "best.pt")


def train_epoch():
    model.train()
    for _ in range(3):
        tokens, labels = torch.randint(30522, (8, 128)).cuda(), torch.randint(5, (8,)).cuda()
        loss = F.cross_entropy(model(tokens), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def evaluate():
    model.eval()
    with torch.no_grad():
        for _ in range(3):
            model(torch.randint(30522, (8, 128)).cuda())


best = None
for epoch in range(3):
    train_epoch()
    evaluate()
    if FIXED:
        torch.save(model.state_dict(), path)
    else:
        best = copy.deepcopy(model.state_dict())
if FIXED:
    os.remove(path)
