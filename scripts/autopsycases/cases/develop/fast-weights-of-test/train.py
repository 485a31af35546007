"""Learns to learn: trains with a few steps on each task, and tests with many."""

import contextlib
import sys

import torch
import torch.nn.functional as F
from torch import nn
from torch.func import functional_call

FIXED = "--fixed" in sys.argv


class ResNet12(nn.Module):
    def __init__(self, ways=5, widths=(64, 160, 320, 640)):
        super().__init__()
        self.blocks, self.skips, channels = nn.ModuleList(), nn.ModuleList(), 3
        for width in widths:
            layers = []
            for i in range(3):
                layers += [nn.Conv2d(channels if i == 0 else width, width, 3, padding=1, bias=False),
                           nn.BatchNorm2d(width, track_running_stats=False)]
                layers += [nn.LeakyReLU(0.1)] if i < 2 else []
            self.blocks.append(nn.Sequential(*layers))
            self.skips.append(nn.Conv2d(channels, width, 1, bias=False))
            channels = width
        self.classifier = nn.Linear(channels, ways)

    def forward(self, x):
        for block, skip in zip(self.blocks, self.skips):
            x = F.max_pool2d(F.leaky_relu(block(x) + skip(x), 0.1), 2)
        return self.classifier(x.mean(dim=(2, 3)))


class PatchedModule:
    """A module whose parameters are those of the last step of an optimizer that can be differentiated."""

    def __init__(self, module, track_higher_grads):
        self.module, self.track_higher_grads = module, track_higher_grads
        self.names = [name for name, _ in module.named_parameters()]
        self._fast_params = []
        self.update_params([p.clone() if track_higher_grads else p.detach().clone().requires_grad_()
                            for p in module.parameters()])

    @property
    def fast_params(self):
        return self._fast_params[-1]

    def update_params(self, new_params):
        if FIXED and not self.track_higher_grads:
            self._fast_params = []
        self._fast_params.append(new_params)

    def __call__(self, *args):
        return functional_call(self.module, dict(zip(self.names, self.fast_params)), args)


class DifferentiableSGD:
    def __init__(self, fmodel, lr):
        self.fmodel, self.lr = fmodel, lr

    def step(self, loss):
        track = self.fmodel.track_higher_grads
        grads = torch.autograd.grad(loss, self.fmodel.fast_params, create_graph=track)
        new_params = [p - self.lr * g for p, g in zip(self.fmodel.fast_params, grads)]
        if not track:
            new_params = [p.detach().requires_grad_() for p in new_params]
        self.fmodel.update_params(new_params)


@contextlib.contextmanager
def innerloop_ctx(model, lr, track_higher_grads=True):
    fmodel = PatchedModule(model, track_higher_grads)
    yield fmodel, DifferentiableSGD(fmodel, lr)


def task(ways=5, shots=1, queries=2):
    x = torch.rand(ways * (shots + queries), 3, 84, 84).cuda()
    y = torch.arange(ways).repeat(shots + queries).cuda()
    return x[: ways * shots], y[: ways * shots], x[ways * shots :], y[ways * shots :]


def train(model, meta_opt, tasks):
    model.train()
    for i in range(tasks):
        x_spt, y_spt, x_qry, y_qry = task()
        meta_opt.zero_grad()
        with innerloop_ctx(model, 0.1) as (fnet, diffopt):
            for _ in range(2):
                diffopt.step(F.cross_entropy(fnet(x_spt), y_spt))
            qry_loss = F.cross_entropy(fnet(x_qry), y_qry)
            qry_loss.backward()
        meta_opt.step()
        print("train", i, qry_loss.item())


def test(model, tasks, inner_steps):
    accuracies = []
    for i in range(tasks):
        x_spt, y_spt, x_qry, y_qry = task()
        with innerloop_ctx(model, 0.1, track_higher_grads=False) as (fnet, diffopt):
            for _ in range(inner_steps):
                diffopt.step(F.cross_entropy(fnet(x_spt), y_spt))
            qry_logits = fnet(x_qry).detach()
            accuracies.append((qry_logits.argmax(dim=1) == y_qry).float().mean().item())
        print("test", i, accuracies[-1])


model = ResNet12().cuda()
meta_opt = torch.optim.Adam(model.parameters(), lr=1e-3)
train(model, meta_opt, tasks=3)
test(model, tasks=2, inner_steps=100)
