"""Run a public training script on made-up data: theirs.py FOLDER/SCRIPT [ARGUMENT ...]

It runs in a folder of its own, with what the script expects to find there. torchvision's MNIST is random
images; tensorboard keeps nothing. Random numbers are the same in each run, whether the script seeds them or
not.
"""

import os
import random
import runpy
import sys
import tempfile
import types


def fake_mnist():
    import torch

    try:
        from torchvision import datasets
    except ImportError:
        return

    class Images(datasets.FakeData):
        """Random images, which some scripts ask for one by one and others read all at once."""

        @property
        def data(self):
            r = torch.Generator().manual_seed(0)
            return torch.randint(0, 256, (len(self), 28, 28), dtype=torch.uint8, generator=r)

        @property
        def targets(self):
            return torch.randint(0, 10, (len(self),), generator=torch.Generator().manual_seed(1))

    def mnist(root, train=True, download=False, transform=None):
        return Images(60000 if train else 10000, (1, 28, 28), 10, as_grey(transform))

    def as_grey(transform):
        return lambda image: transform(image.convert("L").resize((28, 28)))

    datasets.MNIST = mnist


class Nothing:
    """What a logger of another library is replaced by: all that is asked of it does nothing."""

    def __init__(self, *args, **kwargs):
        pass

    def __call__(self, *args, **kwargs):
        return self

    def __getattr__(self, name):
        return self


def fake_tensorboard():
    board = types.ModuleType("torch.utils.tensorboard")
    board.SummaryWriter = Nothing
    sys.modules[board.__name__] = board


def lay_out(script):
    """Makes what scripts read: words, tokens, waves, and what lies beside them."""
    import numpy as np
    import torch

    os.makedirs("results", exist_ok=True)
    r = random.Random(0)
    os.makedirs("words")
    for name, n in (("train", 30000), ("valid", 500), ("test", 500)):
        with open(f"words/{name}.txt", "w") as f:
            for _ in range(n):
                f.write(" ".join(f"w{r.randrange(1000)}" for _ in range(20)) + "\n")
    with open("input.txt", "w") as f:
        f.write("O God, O God!\n" + "".join(r.choice("abcdefgh \n") for _ in range(200_000)))
    os.makedirs("data/tokens")
    for name in ("train", "val"):
        np.random.default_rng(0).integers(0, 2000, 200_000).astype(np.uint16).tofile(
            f"data/tokens/{name}.bin"
        )
    x = np.arange(400)[None] + np.random.default_rng(2).integers(-80, 80, (400, 1))
    waves = np.sin(x / 20.0)
    torch.save(waves, "traindata.pt")
    # or torch.load refuses what time_sequence_prediction reads
    torch.serialization.add_safe_globals(
        [waves.__reduce__()[0], np.ndarray, np.dtype, type(np.dtype(np.float64))]
    )
    for name in os.listdir(os.path.dirname(script)):
        if not os.path.lexists(name) and name not in ("out", "__pycache__"):
            os.symlink(os.path.join(os.path.dirname(script), name), name)


def root(script):
    """The nearest folder above a script whose packages it may import: the checkout's, else its own."""
    folder = os.path.dirname(script)
    for up in (folder, os.path.dirname(folder), os.path.dirname(os.path.dirname(folder))):
        if os.path.exists(os.path.join(up, "setup.py")):
            return up
    return folder


def seed():
    import numpy as np
    import torch

    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)


script = os.path.abspath(sys.argv[1])
sys.argv = sys.argv[1:]
sys.path[0] = os.path.dirname(script)
sys.path.insert(1, root(script))
with tempfile.TemporaryDirectory() as folder:
    os.chdir(folder)
    lay_out(script)
    fake_mnist()
    fake_tensorboard()
    seed()
    runpy.run_path(script, run_name="__main__")
