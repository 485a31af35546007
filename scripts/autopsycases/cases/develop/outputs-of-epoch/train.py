"""Trains an autoencoder with a small trainer that gathers the outputs of all steps for the epoch's end."""

import sys

import torch
import torch.nn.functional as F
from torch import nn

FIXED = "--fixed" in sys.argv


class Autoencoder(nn.Module):
    def __init__(self, features=24000, width=128):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(features, width), nn.ReLU())
        self.decoder = nn.Linear(width, features)

    def forward(self, x):
        return self.decoder(self.encoder(x))

    def training_step(self, batch):
        x = batch / batch.norm(dim=1, keepdim=True)
        x_hat = self(x)
        return {"loss": F.mse_loss(x_hat, x), "x": x, "x_hat": x_hat}


def detached(values):
    return {k: v.detach() for k, v in values.items()}


class Trainer:
    def fit(self, model, steps):
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        epoch_outputs = []
        for _ in range(steps):
            batch = torch.rand(1024, 24000).cuda()
            outputs = model.training_step(batch)
            optimizer.zero_grad()
            outputs["loss"].backward()
            optimizer.step()
            if FIXED:
                print(outputs["loss"].item())
            else:
                epoch_outputs.append(detached(outputs))
        self.training_epoch_end(epoch_outputs)

    def training_epoch_end(self, outputs):
        print("steps gathered:", len(outputs))


Trainer().fit(Autoencoder().cuda(), 30)
