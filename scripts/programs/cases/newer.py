"""Train a small model of a library or of a paper's code, as its documentation does: newer.py NAME [FOLDER]

FOLDER is a checkout that has the code.
"""

import os
import random
import sys
import tempfile
import types

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F


def tasks():
    """MAML-Pytorch's Meta: five steps of gradient descent in each of four tasks, and the gradient of all."""
    from meta import Meta

    convolution = [("relu", [True]), ("bn", [16]), ("max_pool2d", [2, 2, 0])]
    config = [("conv2d", [16, 3, 3, 3, 1, 1]), *convolution]
    config += 2 * [("conv2d", [16, 16, 3, 3, 1, 1]), *convolution]
    config += [("flatten", []), ("linear", [5, 16 * 4 * 4])]
    learner = Meta(
        types.SimpleNamespace(
            update_lr=0.01,
            meta_lr=1e-3,
            n_way=5,
            k_spt=5,
            k_qry=5,
            task_num=4,
            update_step=5,
            update_step_test=10,
            imgc=3,
            imgsz=32,
        ),
        config,
    )
    while True:
        x, y = torch.randn(4, 25, 3, 32, 32), torch.randint(5, (4, 25))
        learner(x, y, torch.randn(4, 25, 3, 32, 32), torch.randint(5, (4, 25)))


def points():
    """pointnet.pytorch's classifier on clouds of points, with its regularizer of feature transforms."""
    from pointnet.model import PointNetCls, feature_transform_regularizer

    model = PointNetCls(k=8, feature_transform=True)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.001, betas=(0.9, 0.999))
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=20, gamma=0.5)
    for step in range(10**9):
        if step % 50 == 0:
            scheduler.step()
        x, y = torch.randn(8, 3, 400), torch.randint(8, (8,))
        optimizer.zero_grad()
        model.train()
        prediction, _, transform = model(x)
        loss = F.nll_loss(prediction, y) + feature_transform_regularizer(transform) * 0.001
        loss.backward()
        optimizer.step()


def splines():
    """pykan's KAN, trained by its own loop, which evaluates after each step."""
    os.chdir(tempfile.mkdtemp(prefix="kan-"))
    from kan import KAN

    r = torch.Generator().manual_seed(0)
    x = torch.rand(3000, 4, generator=r)
    y = torch.exp(torch.sin(x[:, :2].sum(1, keepdim=True)) + x[:, 2:].prod(1, keepdim=True))
    data = {"train_input": x, "train_label": y, "test_input": x[:2000], "test_label": y[:2000]}
    KAN(width=[4, 8, 8, 1], grid=5, k=3, seed=0, auto_save=False).fit(
        data, opt="Adam", steps=10**6, lamb=0.001, batch=2000
    )


def walks():
    """PyTorch Geometric's GPS, attention over whole graphs beside messages."""
    from torch_geometric.nn import GINEConv, GPSConv, global_add_pool

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.edges = nn.Embedding(28, 64), nn.Embedding(4, 64)
            self.layers = nn.ModuleList()
            for _ in range(6):
                inner = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64))
                self.layers.append(GPSConv(64, GINEConv(inner), heads=4, attn_type="multihead"))
            self.out = nn.Linear(64, 1)

        def forward(self, x, edges, kinds, batch):
            x, e = self.words(x), self.edges(kinds)
            for layer in self.layers:
                x = layer(x, edges, batch, edge_attr=e)
            return self.out(global_add_pool(x, batch))

    model = Net()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.001, weight_decay=1e-5)
    while True:
        many = torch.randint(10, 40, (24,)).tolist()
        batch = torch.repeat_interleave(torch.arange(24), torch.tensor(many))
        n = len(batch)
        ends = torch.randint(n, (2, 4 * n))
        optimizer.zero_grad()
        out = model(torch.randint(28, (n,)), ends, torch.randint(4, (4 * n,)), batch)
        (out.squeeze() - torch.randn(24)).abs().mean().backward()
        optimizer.step()


def twins():
    """TD3's own class on made-up experience: two critics each step, the actor every other one."""
    import TD3
    import utils

    buffer = utils.ReplayBuffer(17, 6, max_size=10000)
    r = np.random.default_rng(0)
    for _ in range(10000):
        buffer.add(
            r.standard_normal(17), r.uniform(-1, 1, 6), r.standard_normal(17), r.standard_normal(), False
        )
    buffer.device = torch.device("cpu")
    policy = TD3.TD3(17, 6, 1.0)
    while True:
        policy.train(buffer, 2048)


random.seed(0)
np.random.seed(0)
torch.manual_seed(0)
if len(sys.argv) > 2:
    sys.path.insert(0, sys.argv[2])
globals()[sys.argv[1]]()
