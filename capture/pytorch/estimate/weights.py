"""Weights in files of safetensors, as tensors without memory.

The library makes a tensor of a file's bytes in its own code, past every mode, so torch would put a real
tensor where the training expects one without memory. Here its headers say what a file holds; the tensors are
made as by any script, and the weights themselves are never read. Whole numbers and truth values are, where
they are few: a script may slice or count by them.

Rejected: reading the weights and copying them into tensors without memory, which takes as long as for the
training, and as much memory.
"""

from .tensors import MOST_KEPT


def weights_without_memory(run):
    """Replace safetensors' safe_open, with which all of its loading from files is written."""
    try:
        import safetensors
        import safetensors.torch as tensors
    except ImportError:
        return
    opened = _opener(run, safetensors.safe_open, tensors)
    safetensors.safe_open = tensors.safe_open = opened


def _opener(run, original, tensors):
    torch = run.torch

    class Slice:
        """A tensor of a file, of which only the indexed part is made."""

        def __init__(self, file, name, device):
            self.read, self.device, whole = lambda: file.get_tensor(name), device, file.get_slice(name)
            self.get_shape, self.get_dtype = whole.get_shape, whole.get_dtype

        def __getitem__(self, index):
            dtype = tensors._getdtype(self.get_dtype())
            with run.without():
                part = torch.empty(self.get_shape(), dtype=dtype, device="meta")[index]
                few = part.numel() <= MOST_KEPT and not (dtype.is_floating_point or dtype.is_complex)
                values = self.read()[index] if few else None
            if few:
                return run.followed.constant(values).to(self.device)
            return torch.empty(part.shape, dtype=dtype, device=self.device)

    class File:
        """An open file, like safetensors' own."""

        def __init__(self, filename, framework, device="cpu", **kwargs):
            self.file = original(filename, framework, device="cpu", **kwargs)
            # a number stands for a GPU, as in torch
            self.device = "cuda:%d" % device if isinstance(device, int) else device

        def __getattr__(self, name):
            return getattr(self.file, name)

        def __enter__(self):
            self.file.__enter__()
            return self

        def __exit__(self, *error):
            return self.file.__exit__(*error)

        def get_slice(self, name):
            return Slice(self.file, name, self.device)

        def get_tensor(self, name):
            return self.get_slice(name)[...]

        def get_tensors(self):
            return {name: self.get_tensor(name) for name in self.file.keys()}

    def opening(filename, framework="pt", device="cpu", **kwargs):
        if framework not in ("pt", "torch", "pytorch"):
            return original(filename, framework, device=device, **kwargs)
        return File(filename, framework, device, **kwargs)

    return opening
