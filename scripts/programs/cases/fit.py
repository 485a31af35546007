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


def ignite():
    """A trainer of Ignite with an evaluator that runs after each epoch."""
    from ignite.engine import Events, create_supervised_evaluator, create_supervised_trainer
    from ignite.metrics import Accuracy, Loss

    x, y = (torch.from_numpy(a) for a in pictures(320, 64))
    whole = torch.utils.data.TensorDataset(x, y)
    train, valid = torch.utils.data.random_split(whole, [256, 64])
    model, loss_fn = network(), nn.CrossEntropyLoss()
    trainer = create_supervised_trainer(model, torch.optim.Adam(model.parameters(), 1e-3), loss_fn)
    evaluator = create_supervised_evaluator(model, metrics={"accuracy": Accuracy(), "loss": Loss(loss_fn)})

    @trainer.on(Events.EPOCH_COMPLETED)
    def evaluate():
        evaluator.run(torch.utils.data.DataLoader(valid, batch_size=16))

    trainer.run(torch.utils.data.DataLoader(train, batch_size=16, shuffle=True), max_epochs=EPOCHS)


def tabnet():
    """A classifier of pytorch-tabnet on a made-up table, with a validation set."""
    from pytorch_tabnet.tab_model import TabNetClassifier

    r = np.random.default_rng(0)
    x, y = r.standard_normal((20480, 32), dtype=np.float32), r.integers(0, 2, 20480)
    TabNetClassifier(n_d=32, n_a=32, n_steps=5, verbose=0, device_name="cpu").fit(
        x[2048:],
        y[2048:],
        eval_set=[(x[:2048], y[:2048])],
        max_epochs=EPOCHS,
        patience=0,
        batch_size=2048,
        virtual_batch_size=256,
    )


def metric():
    """A trainer of pytorch-metric-learning, with a miner and a sampler of its own, on ResNet-18."""
    import torchvision
    from pytorch_metric_learning import losses, miners, samplers, trainers

    x, y = pictures(320, 64)
    data = torch.utils.data.TensorDataset(torch.from_numpy(x), torch.from_numpy(y))
    trunk = torchvision.models.resnet18(weights=None)
    trunk.fc = nn.Identity()
    models = {"trunk": trunk, "embedder": nn.Linear(512, 64)}
    trainers.MetricLossOnly(
        models=models,
        optimizers={
            f"{name}_optimizer": torch.optim.Adam(m.parameters(), 1e-4) for name, m in models.items()
        },
        batch_size=32,
        loss_funcs={"metric_loss": losses.TripletMarginLoss(margin=0.1)},
        mining_funcs={"tuple_miner": miners.MultiSimilarityMiner(epsilon=0.1)},
        dataset=data,
        sampler=samplers.MPerClassSampler(y, 4, batch_size=32, length_before_new_iter=320),
        data_device="cpu",
        dataloader_num_workers=0,
    ).train(num_epochs=EPOCHS)


def forecast():
    """NHITS of neuralforecast, which trains with Lightning, on made-up series."""
    import pandas
    from neuralforecast import NeuralForecast
    from neuralforecast.losses.pytorch import MAE
    from neuralforecast.models import NHITS

    r = np.random.default_rng(0)
    days = pandas.date_range("2020-01-01", periods=800)
    frames = [
        pandas.DataFrame({"unique_id": f"s{i}", "ds": days, "y": r.standard_normal(800).cumsum()})
        for i in range(32)
    ]
    model = NHITS(
        h=24,
        input_size=192,
        loss=MAE(),
        max_steps=EPOCHS,
        mlp_units=3 * [[256, 256]],
        windows_batch_size=4096,
        accelerator="cpu",
        logger=False,
        enable_progress_bar=False,
        enable_checkpointing=False,
    )
    NeuralForecast(models=[model], freq="D").fit(pandas.concat(frames))


def yolo():
    """A detector of Ultralytics with its own trainer: augmentations, warm-up, an average of the weights."""
    import tempfile

    from PIL import Image

    folder = tempfile.mkdtemp(prefix="yolo-")
    os.environ.update(YOLO_CONFIG_DIR=folder, YOLO_OFFLINE="true", YOLO_AUTOINSTALL="false")
    os.chdir(folder)
    r = np.random.default_rng(0)
    for part, n in (("train", 64), ("val", 8)):
        os.makedirs(f"images/{part}")
        os.makedirs(f"labels/{part}")
        for i in range(n):
            Image.fromarray(r.integers(0, 256, (160, 160, 3)).astype(np.uint8)).save(f"images/{part}/{i}.png")
            with open(f"labels/{part}/{i}.txt", "w") as f:
                for _ in range(2):
                    x, y = r.uniform(0.3, 0.7, 2)
                    print(r.integers(0, 3), f"{x:.3f} {y:.3f} 0.3 0.2", file=f)
    with open("data.yaml", "w") as f:
        f.write(f"path: {folder}\ntrain: images/train\nval: images/val\nnames: [a, b, c]\n")

    from ultralytics import YOLO

    YOLO("yolov8n.yaml").train(
        data="data.yaml",
        epochs=EPOCHS,
        patience=0,
        imgsz=160,
        batch=8,
        nbs=8,  # otherwise it accumulates gradients of 64 images, and of fewer while it warms up
        device="cpu",
        workers=0,
        amp=False,
        plots=False,
        save=False,
        val=False,
        verbose=False,
        project=folder,
    )


np.random.seed(0)
torch.manual_seed(0)
globals()[sys.argv[1]]()
