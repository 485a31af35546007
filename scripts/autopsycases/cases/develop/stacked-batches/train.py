"""Pretrains a network on a table and, after each epoch, reconstructs the validation rows."""

import sys

import torch
from torch import nn

FIXED = "--fixed" in sys.argv
FEATURES, WIDTH, ROWS = 1200, 512, 4096


class Autoencoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(FEATURES, FEATURES)
        self.encode = nn.Sequential(*(
            layer for _ in range(4)
            for layer in (nn.Linear(FEATURES if _ == 0 else WIDTH, WIDTH), nn.BatchNorm1d(WIDTH), nn.ReLU())
        ))
        self.decode = nn.Linear(WIDTH, FEATURES)

    def forward(self, x):
        embedded = self.embed(x)
        hidden = torch.bernoulli(torch.full_like(embedded, 0.2))
        return self.decode(self.encode(embedded * (1 - hidden))), embedded, hidden


def unsupervised_loss(predicted, embedded, hidden):
    errors = ((predicted - embedded) * hidden).square()
    return (errors.sum(dim=0) / (embedded.std(dim=0) + 1e-9)).mean()


class Pretrainer:
    def __init__(self):
        self.network = Autoencoder().cuda()
        self.optimizer = torch.optim.Adam(self.network.parameters(), lr=2e-2)

    def train_epoch(self, batches):
        self.network.train()
        for _ in range(batches):
            loss = unsupervised_loss(*self.network(torch.rand(ROWS, FEATURES).cuda()))
            for p in self.network.parameters():
                p.grad = None
            loss.backward()
            self.optimizer.step()

    def predict_epoch(self, batches):
        self.network.eval()
        outputs, embeddings, obfuscated = [], [], []
        for _ in range(batches):
            output, embedded, hidden = self.predict_batch(torch.rand(ROWS, FEATURES))
            outputs.append(output)
            embeddings.append(embedded)
            obfuscated.append(hidden)
        scores = unsupervised_loss(*self.stack_batches(outputs, embeddings, obfuscated))
        print(scores.item())

    def predict_batch(self, rows):
        with torch.no_grad():
            answers = self.network(rows.to("cuda").float())
        return tuple(a.cpu() for a in answers) if FIXED else answers

    def stack_batches(self, *lists):
        return tuple(torch.vstack(parts) for parts in lists)


pretrainer = Pretrainer()
for epoch in range(2):
    pretrainer.train_epoch(8)
    pretrainer.predict_epoch(90)
