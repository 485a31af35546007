"""Optimizes an expensive function: a Gaussian process, and fantasies of it for each candidate."""

import functools
import sys
import weakref

import torch
from torch import nn

FIXED = "--fixed" in sys.argv


def clear_cache_hook(module, *args, **kwargs):
    module = module() if isinstance(module, weakref.ref) else module
    if module is not None:
        module._memoize_cache.clear()


class DefaultPredictionStrategy:
    """Predicts from training data; what does not depend on the test points is computed once."""

    def __init__(self, model):
        self.kernel, self.noise = model.kernel, model.noise
        self.train_inputs, self.train_targets = model.train_inputs, model.train_targets
        self._memoize_cache = {}

    @property
    def mean_cache(self):
        if "mean" not in self._memoize_cache:
            covar = self.kernel(self.train_inputs, self.train_inputs)
            cache = linear_cg(covar, self.noise, self.train_targets)
            wrapper = functools.partial(clear_cache_hook, weakref.ref(self) if FIXED else self)
            cache.grad_fn.register_hook(wrapper)
            self._memoize_cache["mean"] = cache
        return self._memoize_cache["mean"]

    def exact_predictive_mean(self, x):
        return self.kernel(x, self.train_inputs) @ self.mean_cache


def linear_cg(covar, noise, rhs, max_iter=8):
    solution, residual = torch.zeros_like(rhs), rhs
    direction = residual
    for _ in range(max_iter):
        product = covar @ direction + noise * direction
        alpha = residual.pow(2).sum() / (direction * product).sum()
        solution, following = solution + alpha * direction, residual - alpha * product
        beta = following.pow(2).sum() / residual.pow(2).sum()
        direction, residual = following + beta * direction, following
    return solution


class MaternKernel(nn.Module):
    def __init__(self, dims):
        super().__init__()
        self.raw_lengthscale = nn.Parameter(torch.zeros(dims))
        self.raw_outputscale = nn.Parameter(torch.zeros(()))

    def forward(self, a, b):
        a, b = (x / nn.functional.softplus(self.raw_lengthscale) for x in (a, b))
        square = a.pow(2).sum(-1, keepdim=True) + b.pow(2).sum(-1) - 2 * a @ b.T
        distance = (5 * square.clamp(min=1e-15)).sqrt()
        return nn.functional.softplus(self.raw_outputscale) * (1 + distance + distance.pow(2) / 3) * (
            -distance
        ).exp()


class SingleTaskGP(nn.Module):
    def __init__(self, train_x, train_y, kernel=None, noise=None):
        super().__init__()
        self.train_inputs, self.train_targets = train_x, train_y
        self.kernel = kernel or MaternKernel(train_x.shape[-1])
        self.noise = noise if noise is not None else nn.Parameter(torch.tensor(0.1))
        self.prediction_strategy = None

    def forward(self, x):
        if self.training:
            return self.kernel(x, x)
        if self.prediction_strategy is None:
            self.prediction_strategy = DefaultPredictionStrategy(self)
        return self.prediction_strategy.exact_predictive_mean(x)

    def fantasize(self, x):
        y = torch.randn(len(x), device=x.device)
        fantasy = SingleTaskGP(torch.cat([self.train_inputs, x]), torch.cat([self.train_targets, y]),
                               self.kernel, self.noise)
        return fantasy.eval()


def fit(model, steps):
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    for _ in range(steps):
        solved = linear_cg(model(model.train_inputs), model.noise, model.train_targets)
        loss = (solved * model.train_targets).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def knowledge_gradient(model, candidates, points):
    """The best mean after the candidates were evaluated; an optimizer may ask for its gradient."""
    return model.fantasize(candidates)(points).max()


train_x, train_y = torch.rand(2500, 10).cuda(), torch.rand(2500).cuda()
model = SingleTaskGP(train_x, train_y).cuda()
fit(model.train(), steps=5)
model.eval()
points = torch.rand(512, 10).cuda()
best, chosen = float("-inf"), None
for iteration in range(80):
    candidates = torch.rand(4, 10).cuda()
    value = knowledge_gradient(model, candidates, points).item()
    if chosen is None or value > best:
        best, chosen = value, candidates
print(chosen.shape)
