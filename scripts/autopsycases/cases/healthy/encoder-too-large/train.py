"""Fine-tunes an encoder with batches of 64 sequences of 512 tokens."""

import torch
import torch.nn.functional as F
from nets import Encoder

model = Encoder().cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=2e-5)
for step in range(3):
    tokens, labels = torch.randint(30522, (64, 512)).cuda(), torch.randint(2, (64,)).cuda()
    loss = F.cross_entropy(model(tokens), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
