"""Trains attention pooling over the tiles of slides; the trainer gathers the results of an epoch."""

import sys

import torch
import torch.nn.functional as F
from nets import ResNet
from torch import nn

FIXED = "--fixed" in sys.argv


class DeepMIL(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = ResNet(depths=(1, 1, 1, 1))
        self.attention = nn.Sequential(nn.Linear(2048, 128), nn.Tanh(), nn.Linear(128, 1))
        self.classifier = nn.Linear(2048, 2)

    def forward(self, tiles):
        features = self.encoder.features(tiles)
        weights = self.attention(features).softmax(dim=0)
        return self.classifier((weights * features).sum(dim=0, keepdim=True)), weights


class Module:
    def __init__(self):
        self.model = DeepMIL().cuda()
        self.optimizer = torch.optim.Adam(self.model.parameters())

    def shared_step(self, tiles, label):
        logits, weights = self.model(tiles)
        results = {
            "loss": F.cross_entropy(logits, label),
            "prob": logits.detach().softmax(dim=-1),
            "attentions": weights.detach(),
            "label": label,
        }
        if not FIXED:
            results["image"] = tiles
        return results

    def training_step(self, tiles, label):
        return self.shared_step(tiles, label)


class Trainer:
    def fit(self, module, epochs, bags):
        for _ in range(epochs):
            outputs = []
            for _ in range(bags):
                tiles = torch.rand(128, 3, 224, 224).to("cuda")
                results = module.training_step(tiles, torch.randint(2, (1,)).to("cuda"))
                module.optimizer.zero_grad()
                results["loss"].backward()
                module.optimizer.step()
                results["loss"] = results["loss"].detach()
                outputs.append(results)
            print(torch.stack([o["loss"] for o in outputs]).mean().item())


Trainer().fit(Module(), 2, 80)
