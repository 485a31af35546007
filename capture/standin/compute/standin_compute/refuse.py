"""Refuses what cannot be computed: sparse and quantized tensors, Triton's kernels, and code that
torch.compile generates for a GPU.

Their kernels do not go through the ops that we replace, so they would do nothing and leave garbage. They
raise instead.
"""

import importlib.abc
import importlib.util
import sys

import torch

from . import report

_KEYS = {
    "SparseCUDA": "sparse tensors are not modelled",
    "SparseCsrCUDA": "sparse tensors are not modelled",
    "QuantizedCUDA": "quantized tensors are not modelled",
}
# Ops that only describe such tensors are allowed.
_DESCRIBES = frozenset("""
    _indices _values indices values crow_indices col_indices ccol_indices row_indices _nnz sparse_dim
    dense_dim is_coalesced _coalesced_ _dimI _dimV _sparse_coo_tensor_with_dims
    _sparse_coo_tensor_with_dims_and_tensors empty size stride detach alias resize_as_sparse_ sparse_resize_
    sparse_resize_and_clear_ _sparse_compressed_tensor_unsafe q_scale q_zero_point qscheme
    q_per_channel_scales q_per_channel_zero_points q_per_channel_axis clone copy_ copy_sparse_to_sparse_ view
    as_strided squeeze unsqueeze _reshape_alias empty_quantized empty_like _empty_affine_quantized
""".split())

TRITON = (
    "Triton kernels cannot run on the stand-in GPU, which has no kernels: "
    'use backend="eager" or "aot_eager" with torch.compile, '
    "or run on the CPU"
)


def install(library):
    """Refuse ops of the keys above, Triton, and inductor's code for a GPU."""
    for key, why in _KEYS.items():
        for name in torch._C._dispatch_get_all_op_names():
            if name.startswith("aten::") and torch._C._dispatch_has_kernel_for_dispatch_key(name, key):
                if name[len("aten::") :].split(".")[0] not in _DESCRIBES:
                    library.impl(name[len("aten::") :], _raiser(name, why), key, allow_override=True)
    _after_import("triton.runtime.jit", _refuse_triton)
    _after_import("torch._inductor.compile_fx", _refuse_inductor)


def _raiser(name, why):
    def refused(*args, **kwargs):
        report.refuse(name, why)
        raise report.Uncomputed(f"{name} is not computed on the stand-in GPU: {why}")

    return refused


def _refuse_triton(module):
    def run(self, *args, **kwargs):
        report.refuse(f"triton kernel {getattr(self, '__name__', '?')}", TRITON)

    module.JITFunction.run = run


def _refuse_inductor(module):
    compile_fx = module.compile_fx

    def refusing(model, example_inputs, *args, **kwargs):
        on_gpu = any(isinstance(x, torch.Tensor) and x.device.type == "cuda" for x in example_inputs)
        if on_gpu or any(p.device.type == "cuda" for p in getattr(model, "parameters", list)()):
            report.refuse("torch.compile (inductor)", TRITON)
        return compile_fx(model, example_inputs, *args, **kwargs)

    module.compile_fx = refusing


def _after_import(name, f):
    """Call f(module) once a module has been imported, or now."""
    if name in sys.modules:
        f(sys.modules[name])
        return
    sys.meta_path.insert(0, _Waiting(name, f))


class _Waiting(importlib.abc.MetaPathFinder):
    def __init__(self, name, f):
        self.name, self.f = name, f

    def find_spec(self, name, path=None, target=None):
        if name != self.name:
            return None
        spec = None  # libraries look for a module before anything imports it, so this finder stays
        for other in sys.meta_path[sys.meta_path.index(self) + 1 :]:
            spec = spec or other.find_spec(name, path, target)
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def exec_module(module):
            execute(module)
            sys.meta_path.remove(self)
            self.f(module)

        spec.loader.exec_module = exec_module
        return spec
