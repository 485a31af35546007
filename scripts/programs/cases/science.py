"""Train a small model of a library for science or of new architectures, as its documentation does:
science.py NAME"""

import itertools
import os
import sys
import tempfile

import torch
from torch import nn
from torch.nn import functional as F

EPOCHS = 100_000  # the caller ends it


def convolutions(*widths):
    layers = []
    for a, b in itertools.pairwise(widths):
        layers += [nn.Conv2d(a, b, 3, padding=1), nn.BatchNorm2d(b), nn.ReLU()]
    return layers


def pictures(batch_size):
    """A loader of random pictures."""
    r = torch.Generator().manual_seed(0)
    x, y = torch.randn(256, 3, 64, 64, generator=r), torch.randint(10, (256,), generator=r)
    return torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), batch_size=batch_size)


def classifier():
    return nn.Sequential(
        *convolutions(3, 16, 16, 16, 16), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10)
    )


def patches():
    """vit-pytorch's CaiT: attention that talks across heads, layers dropped at random."""
    from vit_pytorch.cait import CaiT

    model = CaiT(
        image_size=48,
        patch_size=6,
        num_classes=10,
        dim=64,
        depth=8,
        cls_depth=2,
        heads=4,
        dim_head=16,
        mlp_dim=128,
        dropout=0.1,
        layer_dropout=0.05,
    )
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    while True:
        x, y = torch.randn(8, 3, 48, 48), torch.randint(10, (8,))
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


def spikes():
    """snnTorch's tutorial: leaky neurons over 25 time steps, and a loss for each."""
    import snntorch

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc1 = nn.Linear(784, 1000)
            self.lif1 = snntorch.Leaky(beta=0.95)
            self.fc2 = nn.Linear(1000, 10)
            self.lif2 = snntorch.Leaky(beta=0.95)

        def forward(self, x):
            mem1, mem2 = self.lif1.init_leaky(), self.lif2.init_leaky()
            spikes, potentials = [], []
            for _ in range(25):
                spk1, mem1 = self.lif1(self.fc1(x), mem1)
                spk2, mem2 = self.lif2(self.fc2(spk1), mem2)
                spikes.append(spk2)
                potentials.append(mem2)
            return torch.stack(spikes), torch.stack(potentials)

    model, criterion = Net(), nn.CrossEntropyLoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-4, betas=(0.9, 0.999))
    while True:
        x, y = torch.rand(128, 784), torch.randint(10, (128,))
        _, potentials = model(x)
        loss = torch.zeros(1)
        for at in potentials:
            loss += criterion(at, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def operator():
    """neuraloperator's FNO, whose layers compute in the frequency domain, with complex tensors."""
    from neuralop.models import FNO

    model = FNO(n_modes=(12, 12), hidden_channels=24, in_channels=1, out_channels=1, n_layers=4)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    while True:
        x, y = torch.randn(4, 1, 64, 64), torch.randn(4, 1, 64, 64)
        optimizer.zero_grad()
        missed = (model(x) - y).flatten(1).norm(dim=1) / y.flatten(1).norm(dim=1)
        missed.mean().backward()
        optimizer.step()


def equation():
    """DeepXDE: a network that solves an equation, with second derivatives in its loss."""
    os.environ["DDE_BACKEND"] = "pytorch"
    import deepxde

    deepxde.config.set_random_seed(0)

    def residual(x, y):
        return -deepxde.grad.hessian(y, x, i=0, j=0) - deepxde.grad.hessian(y, x, i=1, j=1) - 1

    square = deepxde.geometry.Rectangle([-1, -1], [1, 1])
    zero = deepxde.icbc.DirichletBC(square, lambda x: 0, lambda x, on: on)
    data = deepxde.data.PDE(square, residual, zero, num_domain=3000, num_boundary=200)
    model = deepxde.Model(data, deepxde.nn.FNN([2] + [64] * 5 + [1], "tanh", "Glorot uniform"))
    model.compile("adam", lr=1e-3)
    model.train(iterations=10**9, display_every=10**9)


def flow():
    """zuko's tutorial: a normalising flow of splines."""
    import zuko

    model = zuko.flows.NSF(features=6, transforms=4, hidden_features=[64] * 2)
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    while True:
        loss = -model().log_prob(torch.randn(512, 6)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def scan():
    """mamba.py: a parallel scan as an autograd function of its own, in 6 layers."""
    from mambapy.mamba import Mamba, MambaConfig

    words, out = nn.Embedding(500, 48), nn.Linear(48, 500)
    model = Mamba(MambaConfig(d_model=48, n_layers=6))
    parameters = [p for m in (words, model, out) for p in m.parameters()]
    optimizer = torch.optim.AdamW(parameters, 1e-3)
    while True:
        t = torch.randint(500, (2, 65))
        logits = out(model(words(t[:, :-1])))
        loss = F.cross_entropy(logits.reshape(-1, 500), t[:, 1:].reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()


def pairs():
    """open_clip's model and loss: pictures and texts, two towers."""
    import open_clip

    model = open_clip.CLIP(
        embed_dim=96,
        vision_cfg={"image_size": 48, "layers": 6, "width": 96, "patch_size": 8, "head_width": 24},
        text_cfg={"context_length": 24, "vocab_size": 1000, "width": 96, "heads": 4, "layers": 6},
    )
    loss_of = open_clip.ClipLoss()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    while True:
        x, t = torch.randn(16, 3, 48, 48), torch.randint(1, 1000, (16, 24))
        optimizer.zero_grad()
        loss_of(*model(x, t)).backward()
        optimizer.step()


def augmented():
    """Kornia: augmentations as modules without gradients, convolutions, its focal loss."""
    import kornia

    augment = kornia.augmentation.AugmentationSequential(
        kornia.augmentation.RandomHorizontalFlip(p=0.5),
        kornia.augmentation.ColorJitter(0.1, 0.1, 0.1, 0.1, p=1.0),
        data_keys=["input", "mask"],
    )
    model = nn.Sequential(*convolutions(3, 24, 24), nn.Conv2d(24, 5, 1))
    criterion = kornia.losses.FocalLoss(alpha=0.5, gamma=2.0, reduction="mean")
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    while True:
        x, where = torch.rand(8, 3, 64, 64), torch.randint(5, (8, 1, 64, 64)).float()
        with torch.no_grad():
            x, where = augment(x, where)
        optimizer.zero_grad()
        criterion(model(x), where[:, 0].long()).backward()
        optimizer.step()


def catalyst():
    """Catalyst's runner, convolutions."""
    from catalyst import dl

    model = classifier()
    names = {"input_key": "features", "output_key": "logits", "target_key": "targets", "loss_key": "loss"}
    dl.SupervisedRunner(**names).train(
        model=model,
        criterion=nn.CrossEntropyLoss(),
        optimizer=torch.optim.Adam(model.parameters(), 0.02),
        loaders={"train": pictures(16)},
        num_epochs=EPOCHS,
        logdir=tempfile.mkdtemp(),
    )


def latents():
    """perceiver-pytorch: latents that attend to all pixels, in 4 layers."""
    from perceiver_pytorch import Perceiver

    model = Perceiver(
        input_channels=3,
        input_axis=2,
        num_freq_bands=4,
        max_freq=10.0,
        depth=4,
        num_latents=48,
        latent_dim=64,
        cross_heads=1,
        latent_heads=4,
        cross_dim_head=32,
        latent_dim_head=16,
        num_classes=10,
        self_per_cross_attn=1,
    )
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    while True:
        x, y = torch.randn(2, 48, 48, 3), torch.randint(10, (2,))
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()


def policy():
    """TorchRL: the loss of PPO as a module on a batch of made-up experience, two networks in one."""
    from tensordict import TensorDict
    from tensordict.nn import NormalParamExtractor, TensorDictModule
    from torchrl.modules import MLP, ProbabilisticActor, TanhNormal, ValueOperator
    from torchrl.objectives import ClipPPOLoss

    net = nn.Sequential(
        MLP(in_features=17, out_features=12, depth=3, num_cells=128), NormalParamExtractor()
    )
    actor = ProbabilisticActor(
        TensorDictModule(net, in_keys=["observation"], out_keys=["loc", "scale"]),
        in_keys=["loc", "scale"],
        distribution_class=TanhNormal,
        return_log_prob=True,
    )
    critic = ValueOperator(
        MLP(in_features=17, out_features=1, depth=3, num_cells=128), in_keys=["observation"]
    )
    loss = ClipPPOLoss(actor, critic)
    optimizer = torch.optim.Adam(loss.parameters(), 3e-4)
    n = 8192
    while True:
        with torch.no_grad():
            batch = actor(TensorDict({"observation": torch.randn(n, 17)}, [n]))
            batch["advantage"], batch["value_target"] = torch.randn(n, 1), torch.randn(n, 1)
        parts = loss(batch)
        sum(parts[f"loss_{of}"] for of in ("objective", "critic", "entropy")).backward()
        optimizer.step()
        optimizer.zero_grad()


torch.manual_seed(0)
globals()[sys.argv[1]]()
