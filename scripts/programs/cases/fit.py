"""Train a small model with the training loop of a library, as in its tutorial: fit.py NAME"""

import itertools
import json
import os
import sys

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

EPOCHS = 100_000  # the caller ends it


def convs(*widths):
    return [
        m
        for a, b in zip(widths, widths[1:])
        for m in (nn.Conv2d(a, b, 3, padding=1), nn.BatchNorm2d(b), nn.ReLU())
    ]


def network():
    return nn.Sequential(*convs(3, *[16] * 8), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10))


def pictures(n, size):
    r = np.random.default_rng(0)
    return r.standard_normal((n, 3, size, size), dtype=np.float32), r.integers(0, 10, n)


def observed(owner, name, parameters):
    """Report each call of an optimizer's method as a step. parameters(optimizer, arguments) returns the
    parameters that it has changed."""
    import observe

    original = getattr(owner, name)

    def method(self, *args, **kwargs):
        out = original(self, *args, **kwargs)
        observe.stepped(parameters(self, *args))
        return out

    setattr(owner, name, method)


def skorch():
    """A classifier of skorch, which holds a fifth of the data back and evaluates after each epoch."""
    from skorch import NeuralNetClassifier

    x, y = pictures(320, 64)
    net = NeuralNetClassifier(
        network,
        criterion=nn.CrossEntropyLoss,
        optimizer=torch.optim.Adam,
        lr=1e-3,
        max_epochs=EPOCHS,
        batch_size=16,
        verbose=0,
    )
    net.fit(x, y)


def fastai():
    """A Learner of fastai with its own Adam, by the one-cycle schedule; each epoch is validated."""
    import fastai.callback.schedule  # noqa: F401  it adds the schedule to the learner
    from fastai.data.core import DataLoaders
    from fastai.learner import Learner
    from fastai.metrics import accuracy
    from fastai.optimizer import Optimizer

    observed(Optimizer, "step", lambda optimizer: [p for p, *_ in optimizer.all_params()])

    x, y = pictures(320, 64)
    whole = torch.utils.data.TensorDataset(torch.from_numpy(x), torch.from_numpy(y))
    train, valid = torch.utils.data.random_split(whole, [256, 64])
    loaders = DataLoaders(
        torch.utils.data.DataLoader(train, batch_size=16, shuffle=True),
        torch.utils.data.DataLoader(valid, batch_size=16),
    )
    Learner(loaders, network(), loss_func=F.cross_entropy, metrics=accuracy).fit_one_cycle(EPOCHS, 1e-3)


def keras():
    """A model of Keras on its torch backend, compiled and fitted with a validation set."""
    os.environ["KERAS_BACKEND"] = "torch"
    import keras

    keras.utils.set_random_seed(0)
    observed(keras.optimizers.Adam, "apply", lambda _, grads, variables: [v.value for v in variables])
    x, y = pictures(320, 64)
    layers = [keras.layers.Input((3, 64, 64)), keras.layers.Permute((2, 3, 1))]
    for _ in range(8):
        layers += [
            keras.layers.Conv2D(16, 3, padding="same"),
            keras.layers.BatchNormalization(),
            keras.layers.ReLU(),
        ]
    model = keras.Sequential([*layers, keras.layers.GlobalAveragePooling2D(), keras.layers.Dense(10)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer="adam", loss=loss, metrics=["accuracy"])
    model.fit(x, y, batch_size=16, epochs=EPOCHS, validation_split=0.2, verbose=0)


def segmentation():
    """A UNet of segmentation_models_pytorch with its Dice loss; each epoch is validated."""
    import segmentation_models_pytorch as smp

    model = smp.Unet("resnet18", encoder_weights=None, classes=3, decoder_channels=(64, 32, 16, 16, 8))
    loss_fn = smp.losses.DiceLoss(smp.losses.MULTICLASS_MODE, from_logits=True)
    optimizer = torch.optim.Adam(model.parameters(), 2e-4)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 1000)
    for _ in range(EPOCHS):
        model.train()
        for _ in range(10):
            image, mask = torch.randn(4, 3, 96, 96), torch.randint(3, (4, 96, 96))
            loss = loss_fn(model(image), mask)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            scheduler.step()
        model.eval()
        with torch.no_grad():
            logits, mask = model(torch.randn(4, 3, 96, 96)), torch.randint(3, (4, 96, 96))
            smp.metrics.get_stats(logits.argmax(1), mask, mode="multiclass", num_classes=3)


def monai():
    """MONAI's 3D UNet with Dice and cross entropy, evaluated by sliding windows after each epoch."""
    from monai.inferers import sliding_window_inference
    from monai.losses import DiceCELoss
    from monai.networks.nets import UNet

    model = UNet(
        3, in_channels=1, out_channels=2, channels=(8, 16, 32, 64), strides=(2, 2, 2), num_res_units=2
    )
    loss_fn = DiceCELoss(to_onehot_y=True, softmax=True)
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    for _ in range(EPOCHS):
        model.train()
        for _ in range(10):
            volume, mask = torch.randn(2, 1, 48, 48, 48), torch.randint(2, (2, 1, 48, 48, 48))
            optimizer.zero_grad()
            loss_fn(model(volume), mask).backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            sliding_window_inference(torch.randn(1, 1, 64, 64, 64), (48, 48, 48), 1, model)


def ppo():
    """PPO of stable-baselines3: rollouts without gradients between batches of training."""
    import gymnasium
    import stable_baselines3

    class Walk(gymnasium.Env):
        """A point in eight dimensions that must reach the origin."""

        observation_space = gymnasium.spaces.Box(-10, 10, (8,), np.float32)
        action_space = gymnasium.spaces.Box(-1, 1, (8,), np.float32)

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            self.at, self.left = self.np_random.uniform(-5, 5, 8).astype(np.float32), 50
            return self.at, {}

        def step(self, action):
            self.at = np.clip(self.at + action, -10, 10).astype(np.float32)
            self.left -= 1
            return self.at, -float(np.abs(self.at).mean()), False, self.left == 0, {}

    stable_baselines3.PPO(
        "MlpPolicy",
        Walk(),
        n_steps=1024,
        batch_size=512,
        seed=0,
        device="cpu",
        policy_kwargs={"net_arch": [256] * 6},
    ).learn(10**9)


def process():
    """An exact Gaussian process of GPyTorch, which differentiates through conjugate gradients."""
    import gpytorch

    class Model(gpytorch.models.ExactGP):
        def __init__(self, x, y, likelihood):
            super().__init__(x, y, likelihood)
            self.mean, self.kernel = gpytorch.means.ConstantMean(), gpytorch.kernels.RBFKernel()
            self.scaled = gpytorch.kernels.ScaleKernel(self.kernel)

        def forward(self, x):
            return gpytorch.distributions.MultivariateNormal(self.mean(x), self.scaled(x))

    x = torch.linspace(0, 1, 1500)
    y = torch.sin(x * 6) + torch.randn(1500) * 0.2
    likelihood = gpytorch.likelihoods.GaussianLikelihood()
    model = Model(x, y, likelihood)
    model.train(), likelihood.train()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    marginal = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
    for _ in itertools.count():
        optimizer.zero_grad()
        (-marginal(model(x), y)).backward()
        optimizer.step()


def pyro():
    """A variational autoencoder by Pyro's SVI, which has an optimizer of torch for each parameter."""
    import pyro
    import pyro.distributions as dist
    from pyro.infer import SVI, Trace_ELBO
    from pyro.optim import PyroOptim

    pyro.set_rng_seed(0)

    class InOrder(PyroOptim):
        """Steps parameters in the order of their names. Pyro hands over a set, whose order differs from run
        to run."""

        def __call__(self, params, *args, **kwargs):
            super().__call__(sorted(params, key=pyro.get_param_store().param_name), *args, **kwargs)

    def layers(*widths, last):
        pairs = zip(widths, widths[1:])
        return nn.Sequential(*[m for a, b in pairs for m in (nn.Linear(a, b), nn.Softplus())], last)

    encode = layers(784, *[400] * 6, last=nn.Linear(400, 100))
    decode = layers(50, *[400] * 6, last=nn.Linear(400, 784))

    def model(x):
        pyro.module("decode", decode)
        with pyro.plate("pictures", len(x)):
            z = pyro.sample("z", dist.Normal(x.new_zeros(len(x), 50), 1).to_event(1))
            pyro.sample("x", dist.Bernoulli(logits=decode(z)).to_event(1), obs=x)

    def guide(x):
        pyro.module("encode", encode)
        with pyro.plate("pictures", len(x)):
            mean, scale = encode(x).chunk(2, 1)
            pyro.sample("z", dist.Normal(mean, F.softplus(scale)).to_event(1))

    svi = SVI(model, guide, InOrder(torch.optim.Adam, {"lr": 1e-3}), Trace_ELBO())
    for _ in itertools.count():
        svi.step(torch.rand(512, 784).round())


def sentences():
    """A fit of sentence-transformers with its loss of pairs in a batch, on made-up words."""
    import tempfile

    import datasets
    import sentence_transformers as st
    import tokenizers
    import transformers
    from sentence_transformers.losses import MultipleNegativesRankingLoss
    from sentence_transformers.models import Pooling, Transformer

    os.chdir(tempfile.mkdtemp(prefix="sentences-"))
    words = {"[PAD]": 0, "[UNK]": 1, **{f"w{i}": i + 2 for i in range(1500)}}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]", model_max_length=128
    ).save_pretrained("model")
    transformers.BertModel(
        transformers.BertConfig(
            vocab_size=len(words),
            hidden_size=96,
            intermediate_size=384,
            num_hidden_layers=12,
            num_attention_heads=6,
        )
    ).save_pretrained("model")
    word = Transformer("model", max_seq_length=128)
    model = st.SentenceTransformer(modules=[word, Pooling(96)], device="cpu")
    r = np.random.default_rng(0)
    with open("pairs.jsonl", "w") as f:
        for _ in range(2000):
            anchor, positive = (" ".join(f"w{i}" for i in r.integers(0, 1500, 80)) for _ in range(2))
            print(json.dumps({"anchor": anchor, "positive": positive}), file=f)
    pairs = datasets.load_dataset("json", data_files="pairs.jsonl", split="train", cache_dir="cache")
    arguments = st.SentenceTransformerTrainingArguments(
        "out",
        num_train_epochs=EPOCHS,
        per_device_train_batch_size=8,
        report_to="none",
        save_strategy="no",
        use_cpu=True,
        disable_tqdm=True,
    )
    st.SentenceTransformerTrainer(
        model=model, args=arguments, train_dataset=pairs, loss=MultipleNegativesRankingLoss(model)
    ).train()


np.random.seed(0)
torch.manual_seed(0)
globals()[sys.argv[1]]()
