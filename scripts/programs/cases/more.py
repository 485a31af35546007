"""Train a small model with the training loop of a library, as in its documentation: more.py NAME"""

import itertools
import os
import sys
import tempfile

import torch
from torch import nn
from torch.nn import functional as F

EPOCHS = 100_000  # the caller ends it


def llama(layers):
    """A LLaMA of random weights, and a tokenizer of made-up words."""
    import tokenizers
    import transformers as t

    words = {"<pad>": 0, "<eos>": 1, "<unk>": 2, **{f"w{i}": i + 3 for i in range(1500)}}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="<unk>"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    fast = t.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>"
    )
    config = t.LlamaConfig(
        vocab_size=len(words),
        hidden_size=96,
        intermediate_size=256,
        num_hidden_layers=layers,
        num_attention_heads=6,
        num_key_value_heads=2,
        bos_token_id=1,
        eos_token_id=1,
        pad_token_id=0,
    )
    return t.LlamaForCausalLM(config), fast


def dpo():
    """TRL's DPOTrainer, which holds a frozen model of reference beside the one that it trains."""
    import random

    import datasets
    import trl

    r = random.Random(0)

    def words(n):
        return " ".join(f"w{r.randrange(1500)}" for _ in range(n))

    rows = [{"prompt": words(40), "chosen": words(80), "rejected": words(80)} for _ in range(2000)]
    os.chdir(tempfile.mkdtemp(prefix="dpo-"))
    for made in llama(8):
        made.save_pretrained("model")
    arguments = trl.DPOConfig(
        "out",
        per_device_train_batch_size=2,
        gradient_accumulation_steps=2,
        num_train_epochs=EPOCHS,
        gradient_checkpointing=False,
        use_cpu=True,
        bf16=False,
        report_to="none",
        save_strategy="no",
        disable_tqdm=True,
    )
    trl.DPOTrainer("model", args=arguments, train_dataset=datasets.Dataset.from_list(rows)).train()


def diffusion():
    """The training of diffusers' tutorial: a UNet on noisy pictures, accelerate with 2 micro-batches, an
    average of the weights."""
    from accelerate import Accelerator
    from diffusers import DDPMScheduler, UNet2DModel
    from diffusers.optimization import get_cosine_schedule_with_warmup
    from diffusers.training_utils import EMAModel

    model = UNet2DModel(
        sample_size=32,
        in_channels=3,
        out_channels=3,
        layers_per_block=2,
        block_out_channels=(32, 32, 64),
        norm_num_groups=8,
        down_block_types=("DownBlock2D", "AttnDownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "AttnUpBlock2D", "UpBlock2D"),
    )
    average = EMAModel(model.parameters(), decay=0.999, model_cls=UNet2DModel, model_config=model.config)
    noiser = DDPMScheduler(num_train_timesteps=1000)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4)
    schedule = get_cosine_schedule_with_warmup(optimizer, 500, EPOCHS)
    pictures = torch.rand(256, 3, 32, 32, generator=torch.Generator().manual_seed(0)) * 2 - 1
    loader = torch.utils.data.DataLoader(pictures, batch_size=8, shuffle=True)
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    model, optimizer, loader, schedule = accelerator.prepare(model, optimizer, loader, schedule)
    for _ in range(EPOCHS):
        for clean in loader:
            noise = torch.randn(clean.shape)
            at = torch.randint(0, 1000, (len(clean),), dtype=torch.int64)
            noisy = noiser.add_noise(clean, noise, at)
            with accelerator.accumulate(model):
                loss = F.mse_loss(model(noisy, at, return_dict=False)[0], noise)
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                schedule.step()
                optimizer.zero_grad()
            if accelerator.sync_gradients:
                average.step(model.parameters())


def privacy():
    """Opacus, which computes a gradient for each example by hooks, clips each, and adds noise."""
    import warnings

    from opacus import PrivacyEngine

    warnings.simplefilter("ignore")
    layers = []
    for a, b in itertools.pairwise((3, 16, 16, 16, 16)):
        layers += [nn.Conv2d(a, b, 3, padding=1), nn.GroupNorm(4, b), nn.ReLU()]
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10))
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    data = torch.utils.data.TensorDataset(torch.randn(64, 3, 64, 64), torch.randint(10, (64,)))
    model, optimizer, loader = PrivacyEngine().make_private(
        module=model,
        optimizer=optimizer,
        data_loader=torch.utils.data.DataLoader(data, batch_size=16),
        noise_multiplier=1.1,
        max_grad_norm=1.0,
        poisson_sampling=False,
    )
    model.train()
    for _ in range(EPOCHS):
        for x, y in loader:
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()


def adjoint():
    """torchdiffeq: an ODE whose backward pass solves another one, as in its example odenet_mnist.py."""
    from torchdiffeq import odeint_adjoint

    def norm(n):
        return nn.GroupNorm(8, n)

    class Slope(nn.Module):
        def __init__(self, n):
            super().__init__()
            self.layers = nn.Sequential(
                norm(n),
                nn.ReLU(),
                nn.Conv2d(n, n, 3, padding=1),
                norm(n),
                nn.ReLU(),
                nn.Conv2d(n, n, 3, padding=1),
            )

        def forward(self, t, x):
            return self.layers(x)

    class Block(nn.Module):
        def __init__(self, n):
            super().__init__()
            self.slope = Slope(n)

        def forward(self, x):
            times = torch.tensor([0.0, 1.0])
            return odeint_adjoint(self.slope, x, times, method="rk4", options={"step_size": 0.25})[1]

    first = [
        nn.Conv2d(3, 32, 3, padding=1),
        norm(32),
        nn.ReLU(),
        nn.Conv2d(32, 32, 4, 2, 1),
        norm(32),
        nn.ReLU(),
    ]
    last = [norm(32), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10)]
    model = nn.Sequential(*first, Block(32), *last)
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
    while True:
        x, y = torch.randn(16, 3, 64, 64), torch.randint(10, (16,))
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()


def codebook():
    """vector-quantize-pytorch's example: an autoencoder whose codes are averages, changed in the forward
    pass."""
    from vector_quantize_pytorch import VectorQuantize

    class Autoencoder(nn.Module):
        def __init__(self, n):
            super().__init__()
            self.encode = nn.Sequential(
                nn.Conv2d(3, n, 3, padding=1),
                nn.GELU(),
                nn.Conv2d(n, n, 4, 2, 1),
                nn.GELU(),
                nn.Conv2d(n, n, 4, 2, 1),
            )
            self.quantize = VectorQuantize(dim=n, codebook_size=256, accept_image_fmap=True, decay=0.8)
            self.decode = nn.Sequential(
                nn.ConvTranspose2d(n, n, 4, 2, 1),
                nn.GELU(),
                nn.ConvTranspose2d(n, n, 4, 2, 1),
                nn.GELU(),
                nn.Conv2d(n, 3, 3, padding=1),
            )

        def forward(self, x):
            codes, _, commitment = self.quantize(self.encode(x))
            return self.decode(codes).clamp(-1, 1), commitment

    model = Autoencoder(32)
    optimizer = torch.optim.AdamW(model.parameters(), 3e-4)
    while True:
        x = torch.rand(16, 3, 64, 64) * 2 - 1
        optimizer.zero_grad()
        made, commitment = model(x)
        loss = (made - x).abs().mean() + 10 * commitment
        loss.backward()
        optimizer.step()


def forecasting():
    """pytorch-forecasting's tutorial: a temporal fusion transformer on made-up series, by Lightning."""
    import warnings

    import lightning
    import numpy as np
    import pandas
    from pytorch_forecasting import QuantileLoss, TemporalFusionTransformer, TimeSeriesDataSet

    warnings.simplefilter("ignore")
    os.chdir(tempfile.mkdtemp(prefix="forecasting-"))
    lightning.seed_everything(0)
    r = np.random.default_rng(0)
    table = pandas.DataFrame(
        {
            "at": np.tile(np.arange(200), 20),
            "of": np.repeat([f"s{i}" for i in range(20)], 200),
            "value": r.standard_normal((20, 200)).cumsum(1).ravel() + 100,
        }
    )
    data = TimeSeriesDataSet(
        table,
        time_idx="at",
        target="value",
        group_ids=["of"],
        max_encoder_length=60,
        max_prediction_length=20,
        min_encoder_length=60,
        time_varying_known_reals=["at"],
        time_varying_unknown_reals=["value"],
        static_categoricals=["of"],
        add_relative_time_idx=True,
        add_target_scales=True,
    )
    model = TemporalFusionTransformer.from_dataset(
        data,
        hidden_size=32,
        attention_head_size=4,
        dropout=0.1,
        lstm_layers=1,
        loss=QuantileLoss(),
        log_interval=-1,
    )
    lightning.Trainer(
        max_epochs=EPOCHS,
        accelerator="cpu",
        gradient_clip_val=0.1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    ).fit(model, data.to_dataloader(train=True, batch_size=64, num_workers=0))


def contrast():
    """lightly's tutorial: MoCo on a narrow ResNet, a second model that follows it, a queue of its results."""
    import copy

    from lightly.loss import NTXentLoss
    from lightly.models.modules import MoCoProjectionHead
    from lightly.models.utils import deactivate_requires_grad, update_momentum
    from torchvision.models.resnet import Bottleneck, ResNet

    narrow = ResNet(Bottleneck, [2, 2, 2, 2], width_per_group=8)
    backbone = nn.Sequential(*list(narrow.children())[:-1])
    head = MoCoProjectionHead(2048, 256, 128)
    follower, its_head = copy.deepcopy(backbone), copy.deepcopy(head)
    deactivate_requires_grad(follower)
    deactivate_requires_grad(its_head)
    loss_fn = NTXentLoss(memory_bank_size=(1024, 128))
    optimizer = torch.optim.SGD([*backbone.parameters(), *head.parameters()], 0.06)
    while True:
        one = torch.randn(8, 3, 96, 96)
        two = one + 0.1 * torch.randn(one.shape)
        update_momentum(backbone, follower, m=0.99)
        update_momentum(head, its_head, m=0.99)
        query = head(backbone(one).flatten(1))
        with torch.no_grad():
            key = its_head(follower(two).flatten(1))
        loss = loss_fn(query, key)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


torch.manual_seed(0)
globals()[sys.argv[1]]()
