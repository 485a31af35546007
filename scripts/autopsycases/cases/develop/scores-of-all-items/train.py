"""Trains a recommender of items by session and evaluates it against all items."""

import sys

import torch
import torch.nn.functional as F
from nets import Block
from torch import nn

FIXED = "--fixed" in sys.argv
ITEMS, LENGTH = 150_000, 20


class SessionModel(nn.Module):
    """Blocks over the items of a session; the last position is compared with every item."""

    def __init__(self, width=64, layers=2):
        super().__init__()
        self.items = nn.Embedding(ITEMS, width)
        self.blocks = nn.Sequential(*(Block(width, 4) for _ in range(layers)))

    def forward(self, sessions):
        hidden = self.blocks(self.items(sessions))[:, -1]
        return hidden @ self.items.weight.t()


def nested_concat(tensors, new):
    return new if tensors is None else torch.cat((tensors, new))


class Trainer:
    def __init__(self, model, predict_top_k=None):
        self.model, self.predict_top_k = model, predict_top_k
        self.optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    def training_step(self, sessions, labels):
        loss = F.cross_entropy(self.model(sessions), labels)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()

    def prediction_step(self, sessions, labels):
        with torch.no_grad():
            scores = self.model(sessions)
            loss = F.cross_entropy(scores, labels)
        if self.predict_top_k:
            scores = torch.topk(scores, self.predict_top_k).values
        return loss, scores, labels

    def evaluation_loop(self, loader):
        preds_host, labels_host, losses = None, None, []
        for sessions, labels in loader:
            loss, preds, labels = self.prediction_step(sessions.cuda(), labels.cuda())
            losses.append(loss.item())
            preds_host = nested_concat(preds_host, preds)
            labels_host = nested_concat(labels_host, labels)
        return sum(losses) / len(losses), preds_host.cpu(), labels_host.cpu()


def batches(number, size):
    for _ in range(number):
        yield torch.randint(ITEMS, (size, LENGTH)), torch.randint(ITEMS, (size,))


trainer = Trainer(SessionModel().cuda(), predict_top_k=100 if FIXED else None)
for sessions, labels in batches(6, 128):
    trainer.training_step(sessions.cuda(), labels.cuda())
print(trainer.evaluation_loop(batches(20, 256))[0])
