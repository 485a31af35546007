"""Fine-tunes an encoder with recomputed blocks and validates it after each epoch."""

import torch
import torch.nn.functional as F
from nets import Encoder
from torch.utils.checkpoint import checkpoint

model = Encoder(layers=8).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5)


def loss_of(batch):
    tokens, labels = torch.randint(30522, (batch, 256)).cuda(), torch.randint(2, (batch,)).cuda()
    x = model.tokens(tokens) + model.positions.weight[:256]
    for block in model.blocks:
        x = checkpoint(block, x, use_reentrant=False)
    return F.cross_entropy(model.classifier(model.norm(x)[:, 0]), labels)


for epoch in range(2):
    model.train()
    for step in range(4):
        loss = loss_of(16)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    model.eval()
    with torch.no_grad():
        print(epoch, sum(loss_of(32).item() for _ in range(3)))
