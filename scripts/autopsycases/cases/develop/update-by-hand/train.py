"""Online deep learning: a classifier at every layer, whose weights are learnt by hand from their losses."""

import sys

import torch
import torch.nn.functional as F
from torch import nn

FIXED = "--fixed" in sys.argv


class Online(nn.Module):
    """A multilayer perceptron with a classifier at every hidden layer."""

    def __init__(self, features=2048, width=2048, layers=10, classes=10):
        super().__init__()
        sizes = [features] + layers * [width]
        self.hidden = nn.ModuleList(nn.Linear(a, b) for a, b in zip(sizes, sizes[1:]))
        self.outputs = nn.ModuleList(nn.Linear(width, classes) for _ in range(layers))
        self.alpha = torch.full((layers,), 1 / layers, device="cuda")

    def forward(self, x):
        predictions = []
        for hidden, output in zip(self.hidden, self.outputs):
            x = F.relu(hidden(x))
            predictions.append(output(x))
        return predictions

    def learn(self, losses):
        alpha = self.alpha * 0.99 ** torch.stack(losses)
        self.alpha = alpha / alpha.sum()


model = Online().cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(120):
    x, y = torch.rand(1024, 2048).cuda(), torch.randint(10, (1024,)).cuda()
    losses = [F.cross_entropy(p, y) for p in model(x)]
    optimizer.zero_grad()
    for weight, loss in zip(model.alpha.tolist(), losses):
        (weight * loss).backward(retain_graph=True)
    optimizer.step()
    if FIXED:
        with torch.no_grad():
            model.learn(losses)
    else:
        model.learn(losses)
