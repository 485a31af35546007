"""Train a model of a library in a loop as in its documentation: loop.py NAME [--bf16] [--small]"""

import itertools
import sys

import torch
from torch import nn
from torch.nn import functional as F

SMALL = "--small" in sys.argv


def images(n, size):
    while True:
        yield torch.randn(n, 3, size, size), torch.randint(10, (n,))


def accelerate():
    """accelerate with gradient accumulation, transformers' GPT-2."""
    from accelerate import Accelerator
    from transformers import GPT2Config, GPT2LMHeadModel

    model = GPT2LMHeadModel(GPT2Config(vocab_size=2000, n_positions=256, n_embd=96, n_layer=12, n_head=6))
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    data = torch.utils.data.DataLoader(torch.randint(2000, (4000, 256)), batch_size=4)
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    model, optimizer, data = accelerator.prepare(model, optimizer, data)
    model.train()
    while True:
        for ids in data:
            with accelerator.accumulate(model):
                loss = model(ids, labels=ids).loss
                accelerator.backward(loss)
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()


def timm_ema():
    """timm with an average of the weights and mixup."""
    import numpy
    import timm.optim
    from timm.data import Mixup
    from timm.loss import SoftTargetCrossEntropy
    from timm.utils import ModelEmaV3

    model = timm.create_model("vit_tiny_patch16_224", num_classes=10, embed_dim=96, drop_path_rate=0.1)
    ema = ModelEmaV3(model, decay=0.99)
    optimizer = timm.optim.create_optimizer_v2(model, opt="adamw", lr=1e-3)
    numpy.random.seed(0)  # mixup draws from it
    mixup, loss_fn = Mixup(mixup_alpha=0.8, cutmix_alpha=1.0, num_classes=10), SoftTargetCrossEntropy()
    model.train()
    for x, y in images(8, 224):
        x, y = mixup(x, y)
        loss = loss_fn(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        ema.update(model)


def timm_convnext():
    import timm.optim

    model = timm.create_model(
        "convnext_tiny", num_classes=10, dims=(24, 48, 96, 192), drop_path_rate=0.1
    ).train()
    classify(model, timm.optim.create_optimizer_v2(model, opt="sgd", lr=0.01, momentum=0.9), images(4, 224))


def torchvision_resnet():
    from torchvision.models.resnet import Bottleneck, ResNet

    model = ResNet(Bottleneck, [3, 4, 6, 3], num_classes=10, width_per_group=8)
    classify(model, torch.optim.SGD(model.parameters(), 0.01, momentum=0.9), images(4, 192))


def torchvision_detection():
    from torchvision.models.detection import fcos_resnet50_fpn

    model = fcos_resnet50_fpn(weights=None, weights_backbone=None, num_classes=5, min_size=160, max_size=160)
    optimizer = torch.optim.SGD(model.parameters(), 0.001, momentum=0.9)
    model.train()
    while True:
        x = [torch.rand(3, 160, 160) for _ in range(2)]
        boxes = [
            {
                "boxes": torch.tensor([[10.0, 10, 80, 90], [40, 30, 120, 130]]),
                "labels": torch.tensor([1, 2]),
            }
        ] * 2
        loss = sum(model(x, boxes).values())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def denoising():
    """denoising_diffusion_pytorch's own trainer, on made-up pictures."""
    import tempfile

    import numpy
    from denoising_diffusion_pytorch import GaussianDiffusion, Trainer, Unet
    from PIL import Image

    model = GaussianDiffusion(Unet(8, dim_mults=(1, 2, 4), flash_attn=False), image_size=16, timesteps=100)
    with tempfile.TemporaryDirectory() as folder:
        pixels = numpy.random.default_rng(0)
        for i in range(128):
            image = Image.fromarray(pixels.integers(0, 256, (16, 16, 3)).astype(numpy.uint8))
            image.save(f"{folder}/{i}.png")
        Trainer(
            model,
            folder,
            train_batch_size=8,
            gradient_accumulate_every=2,
            save_and_sample_every=1_000_000,
            results_folder=folder,
            calculate_fid=False,
        ).train()


def x_transformers():
    """x-transformers' README: a decoder with rotary positions that wraps itself for next tokens."""
    from x_transformers import AutoregressiveWrapper, Decoder, TransformerWrapper

    layers = Decoder(dim=96, depth=12, heads=6, attn_dim_head=16, rotary_pos_emb=True, attn_flash=True)
    model = AutoregressiveWrapper(TransformerWrapper(num_tokens=2000, max_seq_len=256, attn_layers=layers))
    optimizer = torch.optim.Adam(model.parameters(), 1e-4)
    model.train()
    while True:
        loss = model(torch.randint(2000, (4, 257)))
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        optimizer.zero_grad()


def esm():
    """ESM-2, a language model of proteins, by masked residues."""
    import esm

    alphabet = esm.data.Alphabet.from_architecture("ESM-1b")
    model = esm.model.esm2.ESM2(num_layers=12, embed_dim=120, attention_heads=6, alphabet=alphabet)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4)
    model.train()
    while True:
        residues = torch.randint(4, 24, (4, 256))
        hidden = torch.rand(residues.shape) < 0.15
        logits = model(residues.masked_fill(hidden, alphabet.mask_idx))["logits"]
        loss = F.cross_entropy(logits.transpose(1, 2), residues.masked_fill(~hidden, -100))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def pyg():
    """PyTorch Geometric's documentation, a GAT on batches of graphs, whose sizes vary."""
    from torch_geometric.datasets import FakeDataset
    from torch_geometric.loader import DataLoader
    from torch_geometric.nn import GAT, global_mean_pool
    from torch_geometric.seed import seed_everything

    seed_everything(0)  # the made-up graphs are drawn by Python's own generator
    data = FakeDataset(num_graphs=200, avg_num_nodes=200, avg_degree=8, num_channels=32, num_classes=5)
    model = GAT(32, 64, num_layers=3, out_channels=5, heads=4, dropout=0.2, norm="batch_norm")
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    model.train()
    while True:
        for batch in DataLoader(data, batch_size=4, shuffle=True):
            out = global_mean_pool(model(batch.x, batch.edge_index), batch.batch)
            loss = F.cross_entropy(out, batch.y)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()


def classify(model, optimizer, data):
    for x, y in data:
        with torch.autocast("cpu", torch.bfloat16, enabled="--bf16" in sys.argv):
            loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.lstm = nn.Embedding(1000, 64), nn.LSTM(64, 96, 2, batch_first=True, dropout=0.1)
        self.head = nn.Linear(96, 20)

    def forward(self, ids, lengths):
        packed = nn.utils.rnn.pack_padded_sequence(
            self.embed(ids), lengths, batch_first=True, enforce_sorted=False
        )
        out, _ = nn.utils.rnn.pad_packed_sequence(self.lstm(packed)[0], batch_first=True)
        return self.head(out)


def lstm(lengths=lambda n: torch.arange(n) % (8 if SMALL else 24) + 9):
    """An LSTM with packing, with torch alone: the same lengths in each step."""
    model = Tagger()
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    while True:
        n = lengths(16 if SMALL else 512)
        ids, tags = (
            torch.randint(1000, (len(n), int(n.max()))),
            torch.randint(20, (len(n), int(n.max()))),
        )
        loss = F.cross_entropy(model(ids, n).flatten(0, 1), tags.flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()


def lstm_lengths():
    """The same with other lengths in each step."""
    lstm(lambda n: torch.randint(9, int(torch.randint(16, 33, ())), (n,)))


def encoder(checkpoint, eighths=(8,)):
    """torch's own encoder on tokens, with torch.utils.checkpoint around some layers or none. Sequences take
    the given eighths of the maximum length in turn."""
    layers = nn.ModuleList(
        nn.TransformerEncoderLayer(96, 6, 384, batch_first=True) for _ in range(4 if SMALL else 12)
    )
    embed, head = nn.Embedding(1000, 96), nn.Linear(96, 1000)

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.layers, self.head = embed, layers, head

        def forward(self, ids):
            x = self.embed(ids)
            for i, layer in enumerate(self.layers):
                if checkpoint(i):
                    x = torch.utils.checkpoint.checkpoint(layer, x, use_reentrant=False)
                else:
                    x = layer(x)
            return self.head(x)

    model = Model()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    for n in itertools.cycle(eighths):
        ids = torch.randint(1000, (4, n * (8 if SMALL else 32)))
        with torch.autocast("cpu", torch.bfloat16, enabled="--bf16" in sys.argv):
            loss = F.cross_entropy(model(ids).flatten(0, 1), ids.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def transformer():
    encoder(lambda i: False)


def transformer_lengths():
    """Batches padded to their longest sequence."""
    encoder(lambda i: False, (5, 8, 6, 7))


def checkpointed():
    """torch.utils.checkpoint around every other layer."""
    encoder(lambda i: i % 2 == 0)


def gan():
    """The generator's graph waits while the critic's optimizer steps, as in PyTorch's DCGAN."""
    width, size = (8, 32) if SMALL else (24, 64)

    def convs(first, *last):
        layers = [nn.Conv2d(first, width, 3, padding=1), nn.ReLU()]
        for _ in range(5):
            layers += [nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width), nn.Tanh()]
        return nn.Sequential(*layers, *last)

    generator = convs(4, nn.Conv2d(width, 3, 3, padding=1))
    critic = convs(3, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 1))
    of_critic = torch.optim.Adam(critic.parameters(), 1e-3)
    of_generator = torch.optim.Adam(generator.parameters(), 1e-3)
    for real, _ in images(8, size):
        fake = generator(torch.randn(8, 4, size, size))
        of_critic.zero_grad()
        F.softplus(-critic(real)).mean().backward()
        F.softplus(critic(fake.detach())).mean().backward()
        of_critic.step()
        of_generator.zero_grad()
        F.softplus(-critic(fake)).mean().backward()
        of_generator.step()


def lbfgs():
    """LBFGS, which calls forward and backward within its step."""
    model = nn.Sequential(*[m for _ in range(8) for m in (nn.Linear(128, 128), nn.Tanh())], nn.Linear(128, 1))
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=4)
    x = torch.randn(512 if SMALL else 8192, 128)
    y = x.sin().sum(1, keepdim=True)

    def closure():
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        return loss

    while True:
        optimizer.step(closure)


torch.manual_seed(0)
globals()[sys.argv[1]]()
