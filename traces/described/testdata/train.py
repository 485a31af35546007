"""Train a small network for five steps and print losses and a sum of the parameters. If a file is named,
describe the third and fourth step."""
import sys

import torch
from describe import Describe
from torch.nn import functional as F

torch.manual_seed(1)
torch.set_num_threads(1)
model = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.ReLU(inplace=True), torch.nn.Dropout(0.2), torch.nn.Flatten(), torch.nn.Linear(8 * 14 * 14, 10))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)


def train(images, labels):
    optimizer.zero_grad(set_to_none=True)
    loss = F.cross_entropy(model(images), labels)
    loss.backward()
    optimizer.step()
    return loss.item()


recorder = None
for step in range(5):
    batch = torch.randn(4, 3, 16, 16), torch.randint(0, 10, (4,))
    if sys.argv[1] and step == 2:
        recorder = Describe(sys.argv[1], model, optimizer)
    if recorder and step in (2, 3):
        with recorder.step():
            loss = train(*batch)
    else:
        loss = train(*batch)
    print(loss.hex())
if recorder:
    recorder.close()
print(sum(p.double().sum().item() for p in model.parameters()).hex())
