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


def masks():
    """torchvision's Mask R-CNN on a narrow ResNet, with boxes, classes and masks of any number."""
    from torchvision.models.detection import MaskRCNN
    from torchvision.models.detection.anchor_utils import AnchorGenerator
    from torchvision.ops import MultiScaleRoIAlign

    width = 32
    layers = []
    for i in range(5):
        layers += [
            nn.Conv2d(width if i else 3, width, 3, 2 if i < 4 else 1, 1),
            nn.BatchNorm2d(width),
            nn.ReLU(),
        ]
    backbone = nn.Sequential(*layers)
    backbone.out_channels = width
    model = MaskRCNN(
        backbone,
        num_classes=5,
        min_size=256,
        max_size=320,
        rpn_anchor_generator=AnchorGenerator(((32, 64, 128),), ((0.5, 1.0, 2.0),)),
        box_roi_pool=MultiScaleRoIAlign(["0"], 7, 2),
        mask_roi_pool=MultiScaleRoIAlign(["0"], 14, 2),
        rpn_post_nms_top_n_train=200,
        box_batch_size_per_image=64,
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.002, momentum=0.9, weight_decay=1e-4)
    while True:
        images, targets = [], []
        for _ in range(2):
            n = random.randint(1, 6)
            corners = torch.rand(n, 2) * 150
            boxes = torch.cat([corners, corners + 20 + torch.rand(n, 2) * 80], 1)
            shapes = torch.zeros(n, 256, 256, dtype=torch.uint8)
            for m, (left, top, right, bottom) in zip(shapes, boxes.int().tolist(), strict=True):
                m[top:bottom, left:right] = 1
            images.append(torch.rand(3, 256, 256))
            targets.append({"boxes": boxes, "labels": torch.randint(1, 5, (n,)), "masks": shapes})
        loss = sum(model(images, targets).values())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def radiance():
    """nerf-pytorch's tiny NeRF: rays through a field that is evaluated piece by piece."""
    for name in ("matplotlib", "matplotlib.pyplot", "torchsearchsorted"):  # which its training does not use
        sys.modules[name] = types.ModuleType(name)
    sys.modules["torchsearchsorted"].searchsorted = torch.searchsorted
    import tiny_nerf
    from nerf import get_minibatches, positional_encoding

    model = tiny_nerf.VeryTinyNerfModel(num_encoding_functions=6)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    while True:
        pose = torch.eye(4)
        pose[:3, 3] = torch.randn(3)
        image = tiny_nerf.run_one_iter_of_tinynerf(
            48,
            48,
            torch.tensor(60.0),
            pose,
            2.0,
            6.0,
            32,
            positional_encoding,
            get_minibatches,
            16384,
            model,
            6,
        )
        loss = F.mse_loss(image, torch.rand_like(image))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


def isomorphism():
    """PyTorch Geometric's example of GIN, on batches of graphs of any size by its own loader."""
    from torch_geometric.data import Data
    from torch_geometric.loader import DataLoader
    from torch_geometric.nn import GIN, MLP, global_add_pool

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = GIN(16, 128, 5, dropout=0.5, jk="cat")
            self.out = MLP([128, 128, 2], norm="batch_norm", dropout=0.5)

        def forward(self, x, edges, batch, size):
            return self.out(global_add_pool(self.inner(x, edges), batch, size=size))

    graphs = []
    for _ in range(512):
        n = random.randint(10, 60)
        graphs.append(Data(torch.randn(n, 16), torch.randint(n, (2, 4 * n)), y=torch.randint(2, (1,))))
    model = Net()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    while True:
        model.train()
        for data in DataLoader(graphs, batch_size=128, shuffle=True):
            optimizer.zero_grad()
            out = model(data.x, data.edge_index, data.batch, data.batch_size)
            F.cross_entropy(out, data.y).backward()
            optimizer.step()


def scales():
    """torchvision's RetinaNet on a few convolutions, each image at another of four scales."""
    from torchvision.models.detection import RetinaNet
    from torchvision.models.detection.anchor_utils import AnchorGenerator

    width = 32
    layers = []
    for i in range(5):
        layers += [
            nn.Conv2d(width if i else 3, width, 3, 2 if i < 3 else 1, 1),
            nn.BatchNorm2d(width),
            nn.ReLU(),
        ]
    backbone = nn.Sequential(*layers)
    backbone.out_channels = width
    anchors = AnchorGenerator(((16, 32, 64),), ((0.5, 1.0, 2.0),))
    sides = (160, 192, 224, 256)
    model = RetinaNet(backbone, 5, min_size=sides, max_size=320, anchor_generator=anchors)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.002, momentum=0.9, weight_decay=1e-4)
    while True:
        images, targets = [], []
        for _ in range(2):
            n = random.randint(1, 6)
            corners = torch.rand(n, 2) * 150
            boxes = torch.cat([corners, corners + 20 + torch.rand(n, 2) * 80], 1)
            images.append(torch.rand(3, 256, 256))
            targets.append({"boxes": boxes, "labels": torch.randint(1, 5, (n,))})
        loss = sum(model(images, targets).values())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def pooled():
    """PyTorch Geometric's layers as in its example of TopKPooling, on batches of graphs of any size."""
    from torch_geometric.data import Data
    from torch_geometric.loader import DataLoader
    from torch_geometric.nn import GraphConv, TopKPooling, global_max_pool, global_mean_pool

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList(GraphConv(128 if i else 16, 128) for i in range(3))
            self.pools = nn.ModuleList(TopKPooling(128, ratio=0.8) for _ in range(3))
            self.out = nn.Sequential(nn.Linear(256, 128), nn.ReLU(), nn.Dropout(0.5), nn.Linear(128, 6))

        def forward(self, x, edges, batch):
            read = []
            for layer, pool in zip(self.layers, self.pools):
                x = layer(x, edges).relu()
                x, edges, _, batch, _, _ = pool(x, edges, None, batch)
                read.append(torch.cat([global_max_pool(x, batch), global_mean_pool(x, batch)], 1))
            return self.out(sum(read))

    graphs = []
    for _ in range(512):
        n = random.randint(10, 100)
        graphs.append(Data(torch.randn(n, 16), torch.randint(n, (2, 4 * n)), y=torch.randint(6, (1,))))
    model = Net()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.0005)
    while True:
        for data in DataLoader(graphs, batch_size=64, shuffle=True):
            optimizer.zero_grad()
            F.cross_entropy(model(data.x, data.edge_index, data.batch), data.y).backward()
            optimizer.step()


def baselines():
    """Stable-Baselines3's DQN with its network of convolutions, on made-up pictures."""
    import gymnasium
    from stable_baselines3 import DQN

    class Pictures(gymnasium.Env):
        observation_space = gymnasium.spaces.Box(0, 255, (84, 84, 4), np.uint8)
        action_space = gymnasium.spaces.Discrete(6)

        def reset(self, seed=None, options=None):
            super().reset(seed=seed)
            self.steps = 0
            return self.picture(), {}

        def picture(self):
            return self.np_random.integers(0, 256, (84, 84, 4), dtype=np.uint8)

        def step(self, action):
            self.steps += 1
            return self.picture(), float(action == 2), False, self.steps >= 100, {}

    DQN(
        "CnnPolicy",
        Pictures(),
        buffer_size=2000,
        learning_starts=64,
        batch_size=64,
        seed=0,
        device="cpu",
        target_update_interval=100,
        train_freq=1,
    ).learn(10**9)


def conformer():
    """torchaudio's Conformer with CTC, waves' features of any length."""
    from torchaudio.models import Conformer

    model, out = Conformer(80, 4, 256, 6, 31, dropout=0.1), nn.Linear(80, 30)
    optimizer = torch.optim.Adam([*model.parameters(), *out.parameters()], lr=3e-4)
    while True:
        lengths = torch.randint(150, 300, (4,))
        y, lengths = model(torch.randn(4, int(lengths.max()), 80), lengths)
        goals = torch.randint(1, 30, (4, 20))
        loss = F.ctc_loss(out(y).log_softmax(-1).transpose(0, 1), goals, lengths, torch.full((4,), 20))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


random.seed(0)
np.random.seed(0)
torch.manual_seed(0)
if len(sys.argv) > 2:
    sys.path.insert(0, sys.argv[2])
globals()[sys.argv[1]]()
