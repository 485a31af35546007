"""Trains a classifier of documents once for each fold, and keeps the best model of each to compare them."""

import sys

import torch
import torch.nn.functional as F
from nets import Encoder

FIXED = "--fixed" in sys.argv
FOLDS = 6


class EarlyStopping:
    """Remembers how good the last evaluations were, and the model that they were of."""

    def __init__(self):
        self.best, self.model = float("inf"), None

    def check(self, value, model):
        if value < self.best:
            self.best, self.model = value, model


class Trainer:
    def __init__(self, model, early_stopping):
        self.model, self.early_stopping = model, early_stopping
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5)

    def train(self, steps=3):
        self.model.train()
        for _ in range(steps):
            tokens, labels = torch.randint(30522, (4, 128)).cuda(), torch.randint(2, (4,)).cuda()
            loss = F.cross_entropy(self.model(tokens), labels)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
        self.early_stopping.check(0.5, self.model)
        return self.model

    @torch.no_grad()
    def evaluate(self):
        self.model.eval()
        return self.model(torch.randint(30522, (16, 128)).cuda()).argmax(1).cpu()


def train_on_split(fold):
    """Returns a fold's predictions and its trainer."""
    trainer = Trainer(Encoder(layers=8, width=512, heads=8).cuda(), EarlyStopping())
    trainer.train()
    predictions = trainer.evaluate()
    print("fold", fold, torch.cuda.memory_allocated() >> 20, "MiB")
    return predictions, trainer


all_predictions, trainers = [], []
for fold in range(FOLDS):
    predictions, trainer = train_on_split(fold)
    all_predictions.append(predictions)
    if FIXED:
        trainer.model.cpu()
        trainer.optimizer = None
        torch.cuda.empty_cache()
    trainers.append(trainer)
print(len(all_predictions))
