"""Finds the private names that the agent needs in releases of torch, and writes docs/torch-names.md.

usage: torchnames.py SOURCE...    SOURCE is a wheel of torch, or a folder of packages that holds torch

Runs nothing from torch. A wheel for macOS is the smallest (60 MB):

    pip download --no-deps --only-binary=:all: --platform macosx_11_0_arm64 --python-version 3.11 torch==2.2.2

From 2.12 on the platform is macosx_14_0_arm64. The exit status is 1 if a release lacks a name.
"""

from __future__ import annotations

import os
import re
import sys
import zipfile

TABLE = os.path.join(os.path.dirname(__file__), "..", "docs", "torch-names.md")
STUBS = ["torch/_C/__init__.pyi", "torch/_C/_autograd.pyi", "torch/_C/_VariableFunctions.pyi"]
LIBRARIES = ["torch/lib/libtorch_python.so", "torch/lib/libtorch_python.dylib"]

# Names in Python: the files that may have one, and the text that shows it there.
PYTHON = {
    "torch.autograd._get_sequence_nr": (["torch/autograd/__init__.py"], r"\b_get_sequence_nr\b"),
    "torch.autograd._profiler_enabled": (["torch/autograd/__init__.py"], r"\b_profiler_enabled\b"),
    "torch.utils._python_dispatch.TorchDispatchMode": (
        ["torch/utils/_python_dispatch.py"],
        r"^class TorchDispatchMode\b",
    ),
    "TorchDispatchMode._should_skip_dynamo": (
        ["torch/utils/_python_dispatch.py"],
        r"def _should_skip_dynamo\b",
    ),
    "torch.cuda.memory._record_memory_history": (
        ["torch/cuda/memory.py"],
        r"^def _record_memory_history\b",
    ),
    "torch.cuda._lazy_call": (["torch/cuda/__init__.py"], r"^def _lazy_call\b"),
    "torch.cuda.memory._snapshot": (["torch/cuda/memory.py"], r"^def _snapshot\b"),
    "torch.optim.optimizer._global_optimizer_pre_hooks": (
        ["torch/optim/optimizer.py"],
        r"^_global_optimizer_pre_hooks\b",
    ),
    "torch._dynamo.utils.counters": (["torch/_dynamo/utils.py"], r"^counters\b"),
    'counters["stats"]["unique_graphs"]': (
        ["torch/_dynamo/output_graph.py"],
        r'counters\["stats"\]\["unique_graphs"\]',
    ),
    "OpOverload._schema": (["torch/_ops.py"], r"self\._schema\b"),
    "DTensor._local_tensor": (
        ["torch/distributed/tensor/_api.py", "torch/distributed/_tensor/api.py"],
        r"\b_local_tensor\b",
    ),
    "__tensor_flatten__": (["torch/utils/_python_dispatch.py"], r"__tensor_flatten__"),
}

# Names in C++, and names that a release may lack, with what the agent does without them.
C = [
    "torch._C._len_torch_dispatch_stack",
    "torch._C._get_dispatch_stack_at",
    "torch._C._DisableTorchDispatch",
    "torch._C.DisableTorchFunctionSubclass",
    "torch._C._DisableAutocast",
    "torch._C._ExcludeDispatchKeyGuard",
    "torch._C.DispatchKeySet",
    "torch._C.DispatchKey.ADInplaceOrView",
    "torch._C._current_graph_task_id",
    "torch._C._current_autograd_node",
    "torch._C._autograd._push_saved_tensors_default_hooks",
    "torch._C._autograd._pop_saved_tensors_default_hooks",
    "torch._C._autograd._top_saved_tensors_default_hooks",
    "torch._C._autograd._saved_tensors_hooks_disable",
    "torch._C._autograd._saved_tensors_hooks_enable",
    "torch._C._autograd._saved_tensors_hooks_get_disabled_error_message",
    "torch._C._cuda_memoryStats",
    "torch._C._cuda_isHistoryEnabled",
    "torch._C._cuda_getAllocator",
    "Node._sequence_nr",
    "Tensor._version",
    "Tensor._indices",
    "Tensor._values",
    "UntypedStorage._cdata",
    "torch._C._storage_Use_Count",
]
OPTIONAL = {
    "torch._C._autograd._top_saved_tensors_default_hooks": "what is saved outside of modules stays",
    "TorchDispatchMode._should_skip_dynamo": "older torch does not ask",
    "torch._C._storage_Use_Count": "only the inputs of modules count as held by the program",
}


class Source:
    """The files of one release."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.wheel = None if os.path.isdir(path) else zipfile.ZipFile(path)
        found = re.search(rb"__version__ = '(\d+)\.(\d+)", self.read("torch/version.py"))
        if found is None:
            raise SystemExit(f"{path} holds no torch: name a wheel or a folder of packages")
        self.version = int(found.group(1)), int(found.group(2))

    def read(self, name: str) -> bytes:
        """A file's bytes, empty if there is no such file."""
        try:
            if self.wheel is not None:
                return self.wheel.read(name)
            with open(os.path.join(self.path, name), "rb") as f:
                return f.read()
        except (OSError, KeyError):
            return b""

    def seen(self) -> dict[str, str]:
        """The names that were found, each with the evidence for it."""
        out = {}
        for name, (files, pattern) in PYTHON.items():
            if any(re.search(pattern.encode(), self.read(f), re.M) for f in files):
                out[name] = "source"
        stubs = b"\n".join(self.read(f) for f in STUBS)
        library = b"".join(self.read(f) for f in LIBRARIES)
        for name in C:
            last = name.rpartition(".")[2].encode()
            if last + b"\0" in library:  # the linker may keep a name as the tail of another
                out[name] = "library"
            elif re.search(rb"\b" + last + rb"\b", stubs):
                out[name] = "stub"
        return out


def spans(versions: list[tuple[int, int]], every: list[tuple[int, int]]) -> str:
    """Releases in words, with consecutive ones as a span."""
    out: list[str] = []
    for k, v in enumerate(every):
        if v not in versions:
            continue
        text = "%d.%d" % v
        if k > 0 and every[k - 1] in versions:
            out[-1] = out[-1].partition(" to ")[0] + " to " + text
        else:
            out.append(text)
    return ", ".join(out) or "none"


def main(paths: list[str]) -> int:
    sources = sorted((Source(p) for p in paths), key=lambda s: s.version)
    found = {s.version: s.seen() for s in sources}
    every = list(found)
    lacks = 0
    lines = [
        "# The private names of torch that the agent needs",
        "",
        "`capture/pytorch/agent/compat.py` is the only module of the agent that uses them.",
        "`scripts/torchnames.py` made this table from the files of torch %s. It looks for Python names in the"
        % spans(every, every),
        "sources, and for C++ names among the strings of the library or in the stubs.",
        "",
        "| name | seen in | shown by | without it |",
        "|---|---|---|---|",
    ]
    for name in [*C, *PYTHON]:
        versions = [v for v in every if name in found[v]]
        how = sorted({found[v][name] for v in versions})
        if versions != every and name not in OPTIONAL:
            lacks += 1
            print("%s is not in %s" % (name, spans([v for v in every if v not in versions], every)))
        lines.append(f"| `{name}` | {spans(versions, every)} | {', '.join(how)} | {OPTIONAL.get(name, '')} |")
    with open(TABLE, "w") as f:
        f.write("\n".join(lines) + "\n")
    return 1 if lacks else 0


if __name__ == "__main__":
    if len(sys.argv) < 2:
        raise SystemExit(__doc__)
    raise SystemExit(main(sys.argv[1:]))
