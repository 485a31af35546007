"""Trains a network with a quasi-Newton optimizer of the user's own."""

import sys

import torch
import torch.nn.functional as F
from torch import nn

FIXED = "--fixed" in sys.argv
BATCH, WIDTH = 64, 2048


class Quasi(torch.optim.Optimizer):
    """Estimates the diagonal of the Hessian from how gradients change."""

    def __init__(self, params, lr=1e-3, beta=0.9, weight_decay=1e-4):
        super().__init__(params, {"lr": lr, "beta": beta, "weight_decay": weight_decay})

    def step(self, closure=None):
        with torch.set_grad_enabled(not FIXED):
            for group in self.param_groups:
                for p in group["params"]:
                    self.update(p, group)

    def update(self, p, group):
        state = self.state[p]
        if not state:
            state["average"] = torch.zeros_like(p.data)
            state["hessian"] = torch.zeros_like(p.data)
            state["update"] = torch.zeros_like(p.data)
        # p needs a gradient, so that all that is computed from it does, too.
        grad = p.grad.data.add(p, alpha=group["weight_decay"])
        delta = grad - state["average"]
        state["average"] = group["beta"] * state["average"] + (1 - group["beta"]) * grad
        curvature = (delta * state["update"]).sum() - (state["hessian"] * state["update"] ** 2).sum()
        state["hessian"] = state["hessian"] + curvature * state["update"] ** 2
        state["update"] = state["average"] / state["hessian"].abs().clamp(min=0.01)
        p.data.add_(state["update"].data, alpha=-group["lr"])


model = nn.Sequential(
    nn.Linear(1024, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 100)
).cuda()
optimizer = Quasi(model.parameters())
for step in range(120):
    x, y = torch.randn(BATCH, 1024).cuda(), torch.randint(100, (BATCH,)).cuda()
    loss = F.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())
