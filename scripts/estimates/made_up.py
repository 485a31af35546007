"""Made-up data for public training scripts.

    made_up.py make FOLDER                        writes the data; once, outside of any estimate
    made_up.py run FOLDER SCRIPT [ARGUMENT ...]   runs a script on them, or -m MODULE

A script runs in its own folder, which has the data and the files beside the script. torchvision's data sets,
and everything that would come from the Hugging Face Hub, are made up too: names that are fixed in the script
lead to the data here. The script itself is not changed.
"""

import base64
import json
import os
import random
import runpy
import string
import struct
import sys
import tempfile

WORDS = 1000
LENGTHS = 12, 60  # the fewest and the most words of a text
TAGS = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]
THINGS = ["car", "dog", "person"]
CONFIGS = {
    "gpt2": {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "vocab_size": 50257},
    "gpt2-letters": {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "vocab_size": 50257},
    "bert": {
        "model_type": "bert",
        "architectures": ["BertForSequenceClassification"],
        "vocab_size": 28996,
    },
    "llama": {  # as large as Llama 3.2 1B
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "vocab_size": 128256,
        "hidden_size": 2048,
        "intermediate_size": 8192,
        "num_hidden_layers": 16,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "max_position_embeddings": 4096,
        "tie_word_embeddings": True,
    },
    "vit": {"model_type": "vit", "architectures": ["ViTForImageClassification"]},  # ViT-B/16
    "distilbert/distilbert-base-uncased": {
        "model_type": "distilbert",
        "architectures": ["DistilBertForMaskedLM"],
        "vocab_size": 30522,
    },
}
CONFIGS["bert-base-cased"] = CONFIGS["bert"]  # a name that is fixed in scripts
UNET = {  # Stable Diffusion 1.5's; the autoencoder and the text encoder follow
    "sample_size": 64,
    "block_out_channels": [320, 640, 1280, 1280],
    "attention_head_dim": 8,
    "cross_attention_dim": 768,
}
AUTOENCODER = {
    "sample_size": 512,
    "block_out_channels": [128, 256, 512, 512],
    "layers_per_block": 2,
    "down_block_types": ["DownEncoderBlock2D"] * 4,
    "up_block_types": ["UpDecoderBlock2D"] * 4,
}
TEXT_ENCODER = {
    "hidden_size": 768,
    "intermediate_size": 3072,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
}


def text(r):
    return " ".join("w%d" % r.randrange(WORDS) for _ in range(r.randint(*LENGTHS)))


def make_texts(folder):
    r = random.Random(0)
    with open(os.path.join(folder, "input.txt"), "w") as f:
        f.writelines(text(r) + "\n" for _ in range(20_000))
        f.write("%s %s\n" % (string.ascii_letters, "!$&',-.3:;?"))  # Shakespeare's, for models of characters
    os.makedirs(os.path.join(folder, "words"))
    for name in ("train", "valid", "test"):
        with open(os.path.join(folder, "words", name + ".txt"), "w") as f:
            f.writelines(text(r) + "\n" for _ in range(2000))
    with open(os.path.join(folder, "pairs.json"), "w") as f:
        for _ in range(2000):
            row = {"sentence1": text(r), "sentence2": text(r), "label": r.randrange(2)}
            f.write(json.dumps(row) + "\n")
    with open(os.path.join(folder, "similar.json"), "w") as f:
        for _ in range(2000):
            row = {"sentence1": text(r), "sentence2": text(r), "score": r.random()}
            f.write(json.dumps(row) + "\n")
    with open(os.path.join(folder, "tagged.json"), "w") as f:
        for _ in range(2000):
            words = text(r).split()
            row = {"tokens": words, "ner_tags": [r.choice(TAGS) for _ in words]}
            f.write(json.dumps(row) + "\n")
    with open(os.path.join(folder, "instructions.json"), "w") as f:
        rows = [{"instruction": text(r), "input": text(r), "output": text(r)} for _ in range(500)]
        json.dump(rows, f)
    with open(os.path.join(folder, "fsdp.json"), "w") as f:
        json.dump({"version": 2, "transformer_layer_cls_to_wrap": "LlamaDecoderLayer"}, f)
    with open(os.path.join(folder, "bytes.model"), "w") as f:  # a tokenizer of tiktoken's that knows bytes
        f.writelines("%s %d\n" % (base64.b64encode(bytes([i])).decode(), i) for i in range(256))
    os.makedirs(os.path.join(folder, "texts"))
    os.makedirs(os.path.join(folder, "prompts"))
    with open(os.path.join(folder, "texts", "train.jsonl"), "w") as f:
        f.writelines(json.dumps({"text": text(r)}) + "\n" for _ in range(4000))
    with open(os.path.join(folder, "texts", "test.jsonl"), "w") as f:
        f.writelines(json.dumps({"text": text(r)}) + "\n" for _ in range(100))
    with open(os.path.join(folder, "prompts", "train.jsonl"), "w") as f:
        for _ in range(500):
            prompt = [{"role": "user", "content": text(r)}]
            f.write(json.dumps({"prompt": prompt, "solution": "1"}) + "\n")
    os.makedirs(os.path.join(folder, "preferences"))
    with open(os.path.join(folder, "preferences", "train.jsonl"), "w") as f:
        for _ in range(500):
            row = {"prompt": text(r), "chosen": text(r), "rejected": text(r)}
            f.write(json.dumps(row) + "\n")


def make_tokens(folder):
    import numpy as np

    os.makedirs(os.path.join(folder, "data", "tokens"))
    for name in ("train", "val"):
        drawn = np.random.default_rng(0).integers(0, 2000, 200_000)
        drawn.astype(np.uint16).tofile(os.path.join(folder, "data", "tokens", name + ".bin"))


def make_images(folder):
    """Photographs in two classes, and pictures with a mask of two colours each."""
    import numpy as np
    from PIL import Image

    r = np.random.default_rng(1)

    def noise(*shape):
        return r.integers(0, 256, shape, dtype=np.uint8)

    for part, n in (("train", 160), ("val", 40)):
        for kind in "ab":
            place = os.path.join(folder, "img", part, kind)
            os.makedirs(place)
            for k in range(n):
                Image.fromarray(noise(256, 256, 3)).save(os.path.join(place, "%s_%d.jpg" % (kind, k)))
    os.makedirs(os.path.join(folder, "captioned"))
    with open(os.path.join(folder, "captioned", "metadata.jsonl"), "w") as f:
        for k in range(40):
            Image.fromarray(noise(512, 512, 3)).save(os.path.join(folder, "captioned", "%d.jpg" % k))
            f.write(json.dumps({"file_name": "%d.jpg" % k, "text": "w1 w2 w3"}) + "\n")
    for name in ("imgs", "masks"):
        os.makedirs(os.path.join(folder, "data", name))
    for k in range(20):
        Image.fromarray(noise(640, 959, 3)).save(os.path.join(folder, "data", "imgs", "%d.png" % k))
        mask = np.zeros((640, 959), np.uint8)
        mask[100:400, 200:600] = 1
        Image.fromarray(mask).save(os.path.join(folder, "data", "masks", "%d.png" % k))


def make_boxes(folder):
    """Photographs with boxes around things, whose labels are in the format of YOLO and in Pascal VOC's, and
    the font that YOLO would download."""
    import shutil

    import numpy as np
    from matplotlib import font_manager
    from PIL import Image

    r, chance = np.random.default_rng(2), random.Random(2)
    place = os.path.join(os.path.abspath(folder), "boxes")
    for name in ("images", "labels", "annotations"):
        os.makedirs(os.path.join(place, name))
    wide, high = 640, 480
    for k in range(96):
        noise = r.integers(0, 256, (high, wide, 3), dtype=np.uint8)
        Image.fromarray(noise).save(os.path.join(place, "images", "%d.jpg" % k))
        lines, objects = [], []
        for _ in range(chance.randint(1, 12)):
            kind, w, h = chance.randrange(len(THINGS)), chance.randint(20, 300), chance.randint(20, 300)
            x, y = chance.randint(0, wide - w - 1), chance.randint(0, high - h - 1)
            relative = (x + w / 2) / wide, (y + h / 2) / high, w / wide, h / high
            lines.append("%d %f %f %f %f\n" % (kind, *relative))
            box = "<xmin>%d</xmin><ymin>%d</ymin><xmax>%d</xmax><ymax>%d</ymax>" % (x, y, x + w, y + h)
            objects.append("<object><name>%s</name><bndbox>%s</bndbox></object>" % (THINGS[kind], box))
        with open(os.path.join(place, "labels", "%d.txt" % k), "w") as f:
            f.writelines(lines)
        with open(os.path.join(place, "annotations", "%d.xml" % k), "w") as f:
            f.write("<annotation>%s</annotation>\n" % "".join(objects))
    shutil.copy(font_manager.findfont("DejaVu Sans"), os.path.join(folder, "Arial.ttf"))
    with open(os.path.join(folder, "boxes.yaml"), "w") as f:
        f.write("path: %s\ntrain: images\nval: images\nnames: %s\n" % (place, json.dumps(THINGS)))
    with open(os.path.join(folder, "voc.yaml"), "w") as f:
        for part in ("TRAIN", "VALID"):
            f.write("%s_DIR_IMAGES: %s/images\n" % (part, place))
            f.write("%s_DIR_LABELS: %s/annotations\n" % (part, place))
        f.write("CLASSES: %s\n" % json.dumps(["__background__", *THINGS]))
        f.write("NC: %d\nSAVE_VALID_PREDICTION_IMAGES: false\n" % (len(THINGS) + 1))


def write_zeros(model, path):
    """A file of weights for a model without memory. All are zero and take no space on the disk."""
    header, at, tied = {}, 0, set(getattr(model, "_tied_weights_keys", None) or ())
    for key, t in model.state_dict().items():
        if key in tied:
            continue
        size = 4 * t.numel()
        header[key] = {"dtype": "F32", "shape": list(t.shape), "data_offsets": [at, at + size]}
        at += size
    raw = json.dumps({"__metadata__": {"format": "pt"}, **header}).encode()
    raw += b" " * (-len(raw) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(raw)) + raw)
        f.truncate(8 + len(raw) + at)


def word_tokenizer(transformers):
    """A tokenizer that knows the words of the made-up texts."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    words = {w: i for i, w in enumerate(special + ["w%d" % i for i in range(WORDS)])}
    made = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    made.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=made,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
        bos_token="[CLS]",
        eos_token="[SEP]",
        model_max_length=512,
        chat_template="{% for m in messages %}{{ m['content'] }} {% endfor %}",
    )


def byte_tokenizer(transformers):
    """A tokenizer like GPT-2's, for scripts that load that class: a token for each byte."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    end = "<|endoftext|>"
    pieces = [*sorted(pre_tokenizers.ByteLevel.alphabet()), end]
    made = Tokenizer(models.BPE({piece: i for i, piece in enumerate(pieces)}, []))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    return transformers.PreTrainedTokenizerFast(tokenizer_object=made, bos_token=end, eos_token=end)


def make_models(folder):
    """Models in the Hub's format: a configuration, a tokenizer or image processor, and weights that are all
    zero."""
    import torch
    import transformers

    words = word_tokenizer(transformers)
    letters = byte_tokenizer(transformers)
    for name, config in CONFIGS.items():
        place = os.path.join(folder, "models", name)
        os.makedirs(place)
        with open(os.path.join(place, "config.json"), "w") as f:
            json.dump(config, f)
        if name == "vit":
            transformers.ViTImageProcessor().save_pretrained(place)
        else:
            (letters if name == "gpt2-letters" else words).save_pretrained(place)
        with torch.device("meta"):
            kind = getattr(transformers, config["architectures"][0])
            model = kind(transformers.AutoConfig.from_pretrained(place))
        write_zeros(model, os.path.join(place, "model.safetensors"))


def make_diffusion(folder):
    """Stable Diffusion 1.5 without its trained weights, in the folders of its parts."""
    import diffusers
    import torch
    import transformers

    place = os.path.join(folder, "models", "diffusion")
    diffusers.DDPMScheduler().save_pretrained(os.path.join(place, "scheduler"))
    with torch.device("meta"):
        parts = {
            "unet": diffusers.UNet2DConditionModel(**UNET),
            "vae": diffusers.AutoencoderKL(**AUTOENCODER),
            "text_encoder": transformers.CLIPTextModel(transformers.CLIPTextConfig(**TEXT_ENCODER)),
        }
    for name, model in parts.items():
        at = os.path.join(place, name)
        if name == "text_encoder":
            model.config.save_pretrained(at)
            write_zeros(model, os.path.join(at, "model.safetensors"))
        else:
            model.save_config(at)
            write_zeros(model, os.path.join(at, "diffusion_pytorch_model.safetensors"))
    other = os.path.join(folder, "models", "stabilityai")  # the same autoencoder, by names fixed in scripts
    os.makedirs(other)
    for name in ("sd-vae-ft-ema", "sd-vae-ft-mse"):
        os.symlink(os.path.join("..", "diffusion", "vae"), os.path.join(other, name))
    at = os.path.join(place, "tokenizer")
    os.makedirs(at)
    letters = "abcdefghijklmnopqrstuvwxyz0123456789"
    pieces = [*letters, *(c + "</w>" for c in letters), "<|startoftext|>", "<|endoftext|>"]
    with open(os.path.join(at, "vocab.json"), "w") as f:
        json.dump({piece: i for i, piece in enumerate(pieces)}, f)
    with open(os.path.join(at, "merges.txt"), "w") as f:
        f.write("#version: 0.2\n")
    with open(os.path.join(at, "tokenizer_config.json"), "w") as f:
        json.dump({"tokenizer_class": "CLIPTokenizer", "model_max_length": 77}, f)


def make(folder):
    os.makedirs(folder)
    make_texts(folder)
    make_tokens(folder)
    make_images(folder)
    make_boxes(folder)
    make_models(folder)
    make_diffusion(folder)


def fake_torchvision():
    try:
        from torchvision import datasets
    except ImportError:
        return
    import numpy as np
    import torch

    class Images(datasets.FakeData):
        """Random images, which some scripts ask for one by one and others read all at once."""

        @property
        def data(self):
            drawn = np.random.default_rng(0).integers(0, 256, (len(self), 28, 28), dtype=np.uint8)
            return torch.from_numpy(drawn)

        @property
        def targets(self):
            return torch.from_numpy(np.random.default_rng(1).integers(0, 10, (len(self),)))

    def mnist(root, train=True, transform=None, target_transform=None, download=False):
        grey = None
        if transform is not None:
            grey = lambda image: transform(image.convert("L").resize((28, 28)))  # noqa: E731
        return Images(60000 if train else 10000, (1, 28, 28), 10, grey)

    def cifar(root, train=True, transform=None, target_transform=None, download=False):
        return datasets.FakeData(50000 if train else 10000, (3, 32, 32), 10, transform)

    datasets.MNIST = datasets.FashionMNIST = mnist
    datasets.CIFAR10 = cifar


def fake_hub(folder, names):
    """Make names that are fixed in a script lead to the made-up data. names are the packages that it imports:
    evaluate takes six seconds to import, and few scripts need it."""
    os.environ.setdefault("HF_HOME", os.path.join(tempfile.gettempdir(), "gmemtop-made-up-hub"))
    try:
        import datasets
    except ImportError:
        return
    load = datasets.load_dataset
    pairs = os.path.join(folder, "pairs.json")

    def load_dataset(path, *args, **kwargs):
        if path in ("glue", "nyu-mll/glue"):
            made = load("json", data_files={"train": pairs, "validation": pairs})
            count = len(made["train"])
            made = made.map(lambda row, i: {"idx": i % count}, with_indices=True)
            return made.cast_column("label", datasets.ClassLabel(names=["no", "yes"]))
        if path == "sentence-transformers/stsb":
            return load("json", data_files=os.path.join(folder, "similar.json"), split="train")
        if path == "allenai/c4":
            texts = os.path.join(folder, "texts", "train.jsonl")
            return load("json", data_files=texts, split="train", streaming=kwargs["streaming"])
        return load(path, *args, **kwargs)

    class Accuracy:
        """Stands in for a metric, whose code is on the Hub."""

        def compute(self, *args, **kwargs):
            return {"accuracy": 0.5, "f1": 0.5}

        def add_batch(self, *args, **kwargs):
            pass

    datasets.load_dataset = load_dataset
    if "evaluate" in names:
        import evaluate

        evaluate.load = lambda *args, **kwargs: Accuracy()


def fake_timm():
    """Leave out the trained weights of timm's models, which would be downloaded."""
    try:
        import timm
    except ImportError:
        return
    create = timm.create_model
    timm.create_model = lambda *args, pretrained=False, **kwargs: create(*args, **kwargs)


def untrained():
    """Leave out the trained weights of torchvision's models, which would be downloaded."""
    try:
        import torch
        from torchvision.models import WeightsEnum
    except ImportError:
        return

    class Untrained(dict):
        pass

    load = torch.nn.Module.load_state_dict
    torch.nn.Module.load_state_dict = lambda module, state, *args, **kwargs: (
        None if isinstance(state, Untrained) else load(module, state, *args, **kwargs)
    )
    WeightsEnum.get_state_dict = lambda *args, **kwargs: Untrained()


def fake_lightning():
    """Provide the text that its examples download, and its own copy of MNIST."""
    try:
        from lightning.pytorch.demos import mnist_datamodule, transformer
        from torchvision import datasets
    except ImportError:
        return
    mnist_datamodule.MNIST = datasets.MNIST
    words = transformer.WikiText2

    def download(destination):
        os.makedirs(os.path.dirname(destination), exist_ok=True)
        if not os.path.exists(destination):
            os.symlink(os.path.abspath("input.txt"), destination)

    words.download = staticmethod(download)


def fake_geometric():
    """Provide a graph as large as Cora."""
    try:
        import torch
        from torch_geometric import data, datasets
    except ImportError:
        return

    class Planetoid(data.InMemoryDataset):
        def __init__(self, root, name, split="public", transform=None, **_):
            super().__init__(None, transform)
            nodes, r = 2708, torch.Generator().manual_seed(0)
            order = torch.randperm(nodes, generator=r)
            graph = data.Data(
                x=torch.randint(2, (nodes, 1433), generator=r).float(),
                edge_index=torch.randint(nodes, (2, 10556), generator=r),
                y=torch.randint(7, (nodes,), generator=r),
            )
            for mask, at in (("train", order[:140]), ("val", order[140:640]), ("test", order[-1000:])):
                graph[mask + "_mask"] = torch.zeros(nodes, dtype=torch.bool).index_fill(0, at, True)
            self.data, self.slices = self.collate([graph])

    datasets.Planetoid = Planetoid


def lie_beside(folder):
    """Make the content of a folder available in the current one."""
    for name in os.listdir(folder):
        if not os.path.lexists(name):
            os.symlink(os.path.join(folder, name), name)


def run(folder, argv):
    folder = os.path.abspath(folder)
    module = argv[0] == "-m"
    script = None if module else os.path.abspath(argv[0])
    argv = argv[1:] if module else argv
    with tempfile.TemporaryDirectory() as place:
        os.chdir(place)
        for name in ("results", "checkpoints"):
            os.makedirs(name)
        lie_beside(folder)
        lie_beside(os.path.join(folder, "models"))
        sys.argv = argv
        sys.path[0] = place if module else os.path.dirname(script)
        if not module:
            lie_beside(os.path.dirname(script))
        fake_torchvision()
        untrained()
        names = imported(script) if not module else {argv[0].split(".")[0]}
        if names & {"datasets", "diffusers", "transformers", "torchtitan"}:
            fake_hub(folder, names)
        if "timm" in names and "accelerate" in names:
            fake_timm()
        if names & {"lightning", "pytorch_lightning"}:
            fake_lightning()
        if "torch_geometric" in names:
            fake_geometric()
        if module:
            runpy.run_module(argv[0], run_name="__main__", alter_sys=True)
        else:
            runpy.run_path(script, run_name="__main__")


def imported(script):
    """The packages that a script imports, without modules that lie beside it."""
    beside = os.path.dirname(script)
    with open(script) as f:
        lines = [line.split() for line in f if line.lstrip().startswith(("import ", "from "))]
    names = {words[1].split(".")[0].rstrip(",") for words in lines if len(words) > 1}
    return {name for name in names if not os.path.exists(os.path.join(beside, name + ".py"))}


if __name__ == "__main__":
    if sys.argv[1] == "make":
        make(sys.argv[2])
    else:
        run(sys.argv[2], sys.argv[3:])
