"""Searches hyperparameters with one trainer that trains a new model in each trial."""

import gc
import sys

import torch
import torch.nn.functional as F
from nets import Encoder

FIXED = "--fixed" in sys.argv


class Trainer:
    def __init__(self, model_init):
        self.model_init, self.model, self.optimizer = model_init, None, None

    def train(self, lr):
        model = self.model_init().cuda()
        optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
        for _ in range(3):
            tokens = torch.randint(30522, (4, 256)).cuda()
            loss = F.cross_entropy(model(tokens), torch.randint(2, (4,)).cuda())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        self.model, self.optimizer = model, optimizer
        return loss.item()


trainer = Trainer(lambda: Encoder(width=1024, layers=24, heads=16))
for lr in (1e-5, 2e-5, 5e-5):
    if FIXED:
        trainer.model = trainer.optimizer = None
        gc.collect()
    print(lr, trainer.train(lr))
