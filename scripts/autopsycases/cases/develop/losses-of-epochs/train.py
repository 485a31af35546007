"""Trains a network to solve a partial differential equation; its evaluation needs derivatives, too."""

import sys
from copy import deepcopy

import torch
from torch import nn

FIXED = "--fixed" in sys.argv


def derivative(y, x):
    return torch.autograd.grad(y, x, torch.ones_like(y), create_graph=True)[0]


class MLP(nn.Module):
    def __init__(self, insize=2, outsize=1, hsizes=(128, 128, 128, 128)):
        super().__init__()
        sizes = [insize, *hsizes]
        self.linear = nn.ModuleList(nn.Linear(a, b) for a, b in zip(sizes, sizes[1:]))
        self.out = nn.Linear(sizes[-1], outsize)

    def forward(self, x):
        for layer in self.linear:
            x = torch.tanh(layer(x))
        return self.out(x)


class Problem(nn.Module):
    """Burgers' equation: the residual at collocation points, and the error at known points."""

    def __init__(self, grad_inference=True):
        super().__init__()
        self.net, self.grad_inference = MLP(), grad_inference

    def forward(self, batch):
        x, t = batch["x"].requires_grad_(), batch["t"].requires_grad_()
        y = self.net(torch.cat([x, t], dim=-1))
        y_x, y_t = derivative(y, x), derivative(y, t)
        residual = y_t + y * y_x - 0.01 / torch.pi * derivative(y_x, x)
        loss = residual.pow(2).mean() + 10 * (y[: len(batch["y"])] - batch["y"]).pow(2).mean()
        return {**batch, f"{batch['name']}_residual": residual, f"{batch['name']}_loss": loss}


class Trainer:
    def __init__(self, problem, train_data, dev_data, optimizer, epochs, device):
        self.model, self.train_data, self.dev_data = problem, train_data, dev_data
        self.optimizer, self.epochs, self.device = optimizer, epochs, device
        self.best_devloss, self.best_model = float("inf"), deepcopy(problem.state_dict())
        self.loss_history = {"train": [], "dev": []}

    def move_batch_to_device(self, batch):
        return {k: v.to(self.device) if torch.is_tensor(v) else v for k, v in batch.items()}

    def train(self):
        for epoch in range(self.epochs):
            self.model.train()
            losses = []
            for t_batch in self.train_data():
                output = self.model(self.move_batch_to_device(t_batch))
                self.optimizer.zero_grad()
                output["train_loss"].backward()
                nn.utils.clip_grad_norm_(self.model.parameters(), 100.0)
                self.optimizer.step()
                losses.append(output["train_loss"].detach())
            self.loss_history["train"].append(torch.stack(losses).mean())
            with torch.set_grad_enabled(self.model.grad_inference):
                self.model.eval()
                losses = []
                for d_batch in self.dev_data():
                    eval_output = self.model(self.move_batch_to_device(d_batch))
                    losses.append(eval_output["dev_loss"].detach() if FIXED else eval_output["dev_loss"])
                mean_dev_loss = torch.stack(losses).mean()
                self.loss_history["dev"].append(mean_dev_loss)
                if mean_dev_loss < self.best_devloss:
                    self.best_model = deepcopy(self.model.state_dict())
                    self.best_devloss = mean_dev_loss
            print(epoch, mean_dev_loss.item())
            del output, eval_output
        return self.best_model


def points(name, collocation, known):
    return {"name": name, "x": torch.rand(collocation, 1), "t": torch.rand(collocation, 1),
            "y": torch.rand(known, 1)}


problem = Problem().cuda()
optimizer = torch.optim.Adam(problem.parameters(), lr=1e-3)
trainer = Trainer(
    problem, lambda: (points("train", 20_000, 200) for _ in range(3)),
    lambda: (points("dev", 10_000, 100) for _ in range(1)), optimizer, epochs=30, device="cuda",
)
trainer.train()
