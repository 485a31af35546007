"""Train with Lightning: lightning_net.py one|several, for the number of optimizers."""

import sys

import lightning as L
import torch
from torch import nn
from torch.nn import functional as F


class Images(torch.utils.data.Dataset):
    def __len__(self):
        return 100_000

    def __getitem__(self, i):
        return torch.randn(3, 64, 64, generator=torch.Generator().manual_seed(i)), i % 10


def convs(*widths):
    return [
        m
        for a, b in zip(widths, widths[1:])
        for m in (nn.Conv2d(a, b, 3, padding=1), nn.BatchNorm2d(b), nn.ReLU())
    ]


class Classifier(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(
            *convs(3, *[16] * 8), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10)
        )

    def training_step(self, batch, index):
        return F.cross_entropy(self.net(batch[0]), batch[1])

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), 1e-3)


class GAN(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.automatic_optimization = False
        self.generator = nn.Sequential(*convs(8, *[16] * 6), nn.Conv2d(16, 3, 3, padding=1), nn.Tanh())
        self.critic = nn.Sequential(
            *convs(3, *[16] * 6), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 1)
        )

    def training_step(self, batch, index):
        g, d = self.optimizers()
        fake = self.generator(torch.randn(batch[0].shape[0], 8, 64, 64))
        loss = F.softplus(-self.critic(fake)).mean()
        g.zero_grad()
        self.manual_backward(loss)
        g.step()
        loss = F.softplus(self.critic(fake.detach())).mean() + F.softplus(-self.critic(batch[0])).mean()
        d.zero_grad()
        self.manual_backward(loss)
        d.step()

    def configure_optimizers(self):
        return torch.optim.Adam(self.generator.parameters(), 1e-3), torch.optim.Adam(
            self.critic.parameters(), 1e-3
        )


class Words(torch.utils.data.Dataset):
    def __len__(self):
        return 100_000

    def __getitem__(self, i):
        words = torch.randint(0, 2000, (65,), generator=torch.Generator().manual_seed(i))
        return words[:-1], words[1:]


def demo():
    """Lightning's own demo of a transformer, in two parts of three layers."""
    from lightning.pytorch.demos import LightningTransformer
    from lightning.pytorch.demos.transformer import Transformer

    class Offline(LightningTransformer):
        def prepare_data(self):  # it would download words
            pass

    model = Offline(vocab_size=2000)
    model.model = Transformer(2000, ninp=64, nhead=4, nhid=256, nlayers=3)
    return model


L.seed_everything(0)
data, accumulate = Images(), 1
if sys.argv[1] == "demo":
    data, accumulate = Words(), 2
trainer = L.Trainer(
    max_steps=1_000_000,
    accelerator="cpu",
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
    accumulate_grad_batches=accumulate,
    gradient_clip_val=1.0 if accumulate > 1 else None,
)
trainer.fit(
    {"one": Classifier, "several": GAN, "demo": demo}[sys.argv[1]](),
    torch.utils.data.DataLoader(data, batch_size=16),
)
