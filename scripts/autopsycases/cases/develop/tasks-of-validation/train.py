"""Learns to learn (MAML) in a trainer: tasks adapt a clone, in training and in validation."""

import sys

import torch
import torch.nn.functional as F
from torch import nn
from torch.func import functional_call

FIXED = "--fixed" in sys.argv
WAYS, SHOTS, QUERIES, SIZE = 5, 5, 15, 84
TRAIN_TASKS, VALIDATION_TASKS = 4, 60


def stage(channels, to):
    return nn.Sequential(
        nn.Conv2d(channels, to, 3, padding=1),
        nn.BatchNorm2d(to, track_running_stats=False),
        nn.ReLU(),
        nn.MaxPool2d(2),
    )


class LightningMAML:
    def __init__(self, adaptation_steps=1):
        self.model = nn.Sequential(
            stage(3, 64), stage(64, 64), stage(64, 64), stage(64, 64), nn.Flatten(), nn.Linear(64 * 25, WAYS)
        ).cuda()
        self.adaptation_steps = adaptation_steps
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-3)

    def task(self):
        n = WAYS * (SHOTS + QUERIES)
        return torch.rand(n, 3, SIZE, SIZE).cuda(), torch.randint(WAYS, (n,)).cuda()

    @torch.enable_grad()
    def meta_learn(self, task, training):
        images, labels = task
        support, query = images[: WAYS * SHOTS], images[WAYS * SHOTS :]
        params = dict(self.model.named_parameters())
        for _ in range(self.adaptation_steps):
            loss = F.cross_entropy(functional_call(self.model, params, support), labels[: WAYS * SHOTS])
            grads = torch.autograd.grad(loss, params.values(), create_graph=True)
            params = {name: p - 0.1 * g for (name, p), g in zip(params.items(), grads)}
        with torch.set_grad_enabled(training or not FIXED):
            predictions = functional_call(self.model, params, query)
            return F.cross_entropy(predictions, labels[WAYS * SHOTS :])

    def training_step(self):
        self.optimizer.zero_grad()
        total = 0.0
        for _ in range(TRAIN_TASKS):
            loss = self.meta_learn(self.task(), True)
            loss.backward()
            total += loss.item()
        self.optimizer.step()
        return total / TRAIN_TASKS

    @torch.no_grad()
    def validation(self):
        losses = [self.meta_learn(self.task(), False) for _ in range(VALIDATION_TASKS)]
        return torch.stack(losses).mean().item()

    def fit(self, epochs, steps):
        for epoch in range(epochs):
            for _ in range(steps):
                loss = self.training_step()
            print(epoch, loss, self.validation())


LightningMAML().fit(2, 4)
