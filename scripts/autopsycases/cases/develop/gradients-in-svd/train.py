"""Pretrains a word-level language model with GaLore, which projects gradients onto their singular vectors."""

import sys

import torch
import torch.nn.functional as F
from torch import nn

FIXED = "--fixed" in sys.argv
WORDS, WIDTH, BATCH, CONTEXT, RANK = 267_735, 256, 4, 64, 64


class Projector:
    """Projects a gradient to a low rank, and an update back."""

    def __init__(self, rank):
        self.rank, self.basis = rank, None

    def basis_of(self, gradient):
        matrix = gradient.float()
        u, _, vh = torch.linalg.svd(matrix, full_matrices=not FIXED)
        if gradient.shape[0] >= gradient.shape[1]:
            return vh[: self.rank]
        return u[:, : self.rank]

    def project(self, gradient, step, every=200):
        if self.basis is None or step % every == 0:
            self.basis = self.basis_of(gradient)
        if gradient.shape[0] >= gradient.shape[1]:
            return gradient @ self.basis.t()
        return self.basis.t() @ gradient

    def back(self, update, gradient):
        return update @ self.basis if gradient.shape[0] >= gradient.shape[1] else self.basis @ update


class GaLoreAdam(torch.optim.Optimizer):
    def __init__(self, parameters, lr=1e-3):
        super().__init__(parameters, {"lr": lr})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                state, low = self.state[p], p.grad
                if not state:
                    state["step"], state["projector"] = 0, Projector(RANK)
                if p.dim() == 2:
                    low = state["projector"].project(p.grad, state["step"])
                if "mean" not in state:
                    state["mean"], state["square"] = torch.zeros_like(low), torch.zeros_like(low)
                state["step"] += 1
                state["mean"].mul_(0.9).add_(low, alpha=0.1)
                state["square"].mul_(0.999).addcmul_(low, low, value=0.001)
                update = state["mean"] / (state["square"].sqrt() + 1e-8)
                if p.dim() == 2:
                    update = state["projector"].back(update, p.grad)
                p.add_(update, alpha=-group["lr"])


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.cell = nn.LSTM(WIDTH, WIDTH, 2, batch_first=True)
        self.head = nn.Linear(WIDTH, WORDS)

    def forward(self, words):
        return self.head(self.cell(self.words(words))[0])


model = Model().cuda()
optimizer = GaLoreAdam(model.parameters())
for step in range(3):
    words = torch.randint(WORDS, (BATCH, CONTEXT + 1)).cuda()
    loss = F.cross_entropy(model(words[:, :-1]).flatten(0, 1), words[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step)
