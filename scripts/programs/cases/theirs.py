"""Run a public training script on made-up data: theirs.py FOLDER/SCRIPT [ARGUMENT ...]

It runs in its own folder, with the files that the script expects there. torchvision's MNIST and CIFAR-10 are
replaced by random images, loggers by nothing. Random numbers are the same in each run, whether the script
seeds them or not.
"""

import os
import random
import runpy
import sys
import tempfile
import types


def fake_data_sets():
    import torch

    try:
        from torchvision import datasets
    except ImportError:
        return
    from PIL import Image

    class Images(torch.utils.data.Dataset):
        """Random images, which some scripts ask for one by one and others read all at once."""

        def __init__(self, root, train=True, download=False, transform=None):
            n, self.transform = 60000 if train else 10000, transform
            r = torch.Generator().manual_seed(0)
            self.data = torch.randint(0, 256, (n, 28, 28), dtype=torch.uint8, generator=r)
            self.targets = torch.randint(0, 10, (n,), generator=r)

        def __len__(self):
            return len(self.data)

        def __getitem__(self, i):
            return self.transform(Image.fromarray(self.data[i].numpy())), int(self.targets[i])

    def few(root, train=True, download=False, transform=None):
        r = torch.Generator().manual_seed(0)
        n = 640 if train else 128
        pixels = torch.randint(0, 256, (n, 32, 32, 3), dtype=torch.uint8, generator=r)
        labels = torch.randint(0, 10, (n,), generator=r).tolist()
        return [(transform(Image.fromarray(p.numpy())), label) for p, label in zip(pixels, labels)]

    datasets.MNIST = Images
    datasets.CIFAR10 = few


def old_names():
    """Names that scripts use and newer Pillow lacks."""
    from PIL import Image

    Image.ANTIALIAS = Image.LANCZOS


def without_weights():
    """torchvision's VGG-16 starts from random weights, whatever weights the script asks for."""
    try:
        from torchvision import models
    except ImportError:
        return
    make = models.vgg16
    models.vgg16 = lambda weights=None: make(weights=None)


class Nothing:
    """Replaces a logger of another library: any call does nothing."""

    def __init__(self, *args, **kwargs):
        pass

    def __call__(self, *args, **kwargs):
        return self

    def __getattr__(self, name):
        return self


def fake_loggers(script):
    board = types.ModuleType("torch.utils.tensorboard")
    board.SummaryWriter = Nothing
    sys.modules[board.__name__] = board
    if "Pytorch-UNet" in script:
        sys.modules["wandb"] = Nothing()


def paint(folder, n):
    """Random pictures of two classes, one folder for each."""
    import numpy as np
    from PIL import Image

    pixels = np.random.default_rng(0)
    for i in range(n):
        os.makedirs(f"{folder}/{i % 2}", exist_ok=True)
        image = Image.fromarray(pixels.integers(0, 256, (96, 96, 3)).astype(np.uint8))
        image.save(f"{folder}/{i % 2}/{i}.png")


def photographs(n):
    """Random pictures, and for each a mask with two classes."""
    import numpy as np
    from PIL import Image

    pixels = np.random.default_rng(0)
    os.makedirs("data/imgs")
    os.makedirs("data/masks")
    for i in range(n):
        image = pixels.integers(0, 256, (192, 192, 3)).astype(np.uint8)
        Image.fromarray(image).save(f"data/imgs/{i}.png")
        Image.fromarray(((image[..., 0] > 127) * 255).astype(np.uint8)).save(f"data/masks/{i}.png")


def graph(folder, n, edges):
    """A random graph in the files of the Cora data set: features and a class of each node, and citations."""
    r = random.Random(0)
    os.makedirs(folder)
    with open(f"{folder}/cora.content", "w") as f:
        for i in range(n):
            f.write(" ".join([str(i), *(str(int(r.random() < 0.1)) for _ in range(50)), f"class{i % 7}\n"]))
    with open(f"{folder}/cora.cites", "w") as f:
        for i in r.sample(range(n * n), edges):
            f.write(f"{i // n} {i % n}\n")


def lay_out(script):
    """Makes the files that scripts read: words, tokens, waves, pictures, a graph, and the files beside
    them."""
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
    if "pictures" in sys.argv:
        paint("pictures/train", 128)
        paint("pictures/val", 8)
    if "super_resolution" in script:
        paint("dataset/BSDS300/images", 32)
        for name, i in (("train", 0), ("test", 1)):
            os.rename(f"dataset/BSDS300/images/{i}", f"dataset/BSDS300/images/{name}")
    if "neural_style" in script:
        paint("pictures", 32)
        os.link("pictures/0/0.png", "style.png")
    if "/gat/" in script:
        graph("cora", 2000, 4000)
    if "Pytorch-UNet" in script:
        photographs(24)
    if "llama2.c" in script:
        os.makedirs("data/tok500")
        for i in range(2):
            np.random.default_rng(i).integers(0, 500, 50_000).astype(np.uint16).tofile(f"data/tok500/{i}.bin")
    if "cyclegan" in script:
        for part in ("train", "test"):
            for side in ("A", "B"):
                paint(f"../../data/monet2photo/{part}", 32)
                os.rename(f"../../data/monet2photo/{part}/0", f"../../data/monet2photo/{part}/{side}")
    x = np.arange(100)[None] + np.random.default_rng(2).integers(-80, 80, (100, 1))
    waves = np.sin(x / 20.0)
    torch.save(waves, "traindata.pt")
    # otherwise torch.load refuses what time_sequence_prediction reads
    torch.serialization.add_safe_globals(
        [waves.__reduce__()[0], np.ndarray, np.dtype, type(np.dtype(np.float64))]
    )
    for name in os.listdir(os.path.dirname(script)):
        if not os.path.lexists(name) and name not in ("out", "__pycache__"):
            os.symlink(os.path.join(os.path.dirname(script), name), name)


def root(script):
    """The nearest folder above a script whose packages it may import: the checkout's, otherwise its own."""
    folder = os.path.dirname(script)
    for up in (folder, os.path.dirname(folder), os.path.dirname(os.path.dirname(folder))):
        if any(os.path.exists(os.path.join(up, name)) for name in ("setup.py", "pyproject.toml", "sam.py")):
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
    folder = os.path.join(folder, "checkout", "script")  # scripts look for data in folders above theirs
    os.makedirs(folder)
    os.chdir(folder)
    lay_out(script)
    fake_data_sets()
    without_weights()
    if "neural_style" in script:
        old_names()
    fake_loggers(script)
    seed()
    runpy.run_path(script, run_name="__main__")
