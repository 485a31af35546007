"""Fine-tunes a classifier on a weighted sum of an audio encoder's layers; the trainer gathers its outputs."""

import sys

import torch
import torch.nn.functional as F
from nets import Block
from torch import nn

FIXED = "--fixed" in sys.argv


class AudioClassifier(nn.Module):
    def __init__(self, width=256, layers=4, classes=10, mels=80):
        super().__init__()
        self.conv1 = nn.Conv1d(mels, width, 3, padding=1)
        self.conv2 = nn.Conv1d(width, width, 3, stride=2, padding=1)
        self.blocks = nn.ModuleList(Block(width, 8, causal=False) for _ in range(layers))
        self.weights = nn.Parameter(torch.ones(layers + 1) / (layers + 1))
        self.classifier = nn.Linear(width, classes)

    def forward(self, features, labels):
        x = F.gelu(self.conv2(F.gelu(self.conv1(features)))).transpose(1, 2)
        states = [x]
        for block in self.blocks:
            x = block(x)
            states.append(x)
        weights = self.weights.softmax(dim=-1).view(-1, 1, 1, 1)
        pooled = (torch.stack(states) * weights).sum(dim=0).mean(dim=1)
        logits = self.classifier(pooled)
        return F.cross_entropy(logits, labels), logits, tuple(states)


def nested(function, first, *others):
    if isinstance(first, (list, tuple)):
        return tuple(nested(function, *parts) for parts in zip(first, *others))
    return function(first, *others)


class Trainer:
    def __init__(self, model):
        self.model = model
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=3e-5)

    def train(self, steps):
        self.model.train()
        for step in range(steps):
            loss, *_ = self.model(torch.randn(8, 80, 3000).cuda(), torch.randint(10, (8,)).cuda())
            loss.backward()
            self.optimizer.step()
            self.optimizer.zero_grad()
            print(step, loss.item())

    def evaluation_loop(self, batches):
        self.model.eval()
        preds = None
        for _ in range(batches):
            with torch.no_grad():
                _, *outputs = self.model(torch.randn(8, 80, 3000).cuda(), torch.randint(10, (8,)).cuda())
            if FIXED:
                outputs = nested(torch.Tensor.cpu, outputs)
            preds = outputs if preds is None else nested(lambda a, b: torch.cat((a, b)), preds, outputs)
        return preds


trainer = Trainer(AudioClassifier().cuda())
trainer.train(5)
print(trainer.evaluation_loop(30)[0].argmax(dim=-1).shape)
