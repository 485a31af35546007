"""Fine-tunes a model of 1.5 billion parameters with AdamW in fp32 on a card of 16 GiB."""

import torch
import torch.nn.functional as F
from nets import GPT

with torch.device("cuda"):
    model = GPT(width=1600, layers=48, heads=25)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
for step in range(3):
    tokens = torch.randint(50257, (1, 1025)).cuda()
    loss = F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
