"""Part two of the estimate: the world that the script sees. Each function below replaces one thing that needs
memory, a device or other processes with something that gives the same answers.
"""

import contextlib
import ctypes
import os
import re

from .tensors import MOST_KEPT
from .training import Unsupported, pretend_ranks


def _pretend_below(run):
    """Make the parts below Python work without a device: the guard that switches devices, and the query for
    the devices that have a context."""
    torch = run.torch
    ensure = getattr(torch._C, "_ensureCUDADeviceGuardSet", None)
    if ensure is not None:
        ensure()
    if not torch._C._has_cuda:
        return
    if ensure is None and run.config["kind"] == "cuda":
        raise Unsupported(
            "this build of torch (%s) is for CUDA and cannot pretend that there is a device, which newer "
            "ones can: try --allocator real, or take a newer torch or torch's build for the CPU, or say "
            "--cpu for a training on the CPU" % torch.__version__
        )
    root = os.path.dirname(torch.__file__)
    try:
        headers = [
            os.path.join(root, "include", "ATen", "detail", name)
            for name in ("AcceleratorHooksInterface.h", "CUDAHooksInterface.h")
        ]
        with open(
            headers[0] if os.path.exists(headers[0]) else headers[1]
        ) as f:  # before torch 2.3 CUDA's table inherits nothing
            names = re.findall(r"^\s*virtual\s+[^(;{]*?(~?\w+)\s*\(", f.read(), re.M)
        # The table starts with two words of its own, and a destructor has two entries.
        place = 2 + names.index("hasPrimaryContext") + 1
        library = ctypes.CDLL(os.path.join(root, "lib", "libtorch_cpu.so"))
        hooks = library._ZN2at6detail12getCUDAHooksEv
    except (OSError, ValueError, AttributeError) as e:
        raise Unsupported(
            "this build of torch (%s) is for CUDA and needs a device even to plan for one (%s): "
            "install torch's build for the CPU in an environment of its own, "
            "pip install torch --index-url https://download.pytorch.org/whl/cpu" % (torch.__version__, e)
        ) from e
    if names[0][0] != "~":
        raise Unsupported(
            "this build of torch (%s) is laid out in a way that is not known here" % torch.__version__
        )
    hooks.restype = ctypes.c_void_p
    table = ctypes.c_void_p.from_address(hooks())
    words = ctypes.c_void_p * (2 + 96)
    copy = words(*words.from_address(table.value - 16))
    no = ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_void_p, ctypes.c_int8)(lambda self, index: False)
    copy[place] = ctypes.cast(no, ctypes.c_void_p).value
    table.value = ctypes.addressof(copy) + 16
    run.kept = (library, copy, no)


def _factories(run):
    """Note the ops that make values from their arguments alone, and how many elements they make."""
    aten = run.torch.ops.aten

    def product(args):
        n = 1
        for x in args[0]:
            n *= x
        return n

    def sized(args):  # the size follows the bounds
        return product([next((a for a in args if isinstance(a, (list, tuple))), ())])

    def span(args):
        numbers = [a for a in args if isinstance(a, (int, float))]
        if len(numbers) == 1:
            return numbers[0]
        return abs(numbers[1] - numbers[0]) / (abs(numbers[2]) if len(numbers) > 2 and numbers[2] else 1)

    run.factories = {
        aten.arange: span,
        aten.linspace: lambda a: a[2] if len(a) > 2 else MOST_KEPT + 1,
        aten.full: product,
        aten.zeros: product,
        aten.ones: product,
        aten.scalar_tensor: lambda a: 1,
        aten.eye: lambda a: a[0] ** 2,
        aten.randperm: lambda a: a[0] / 100,
        aten.randint: sized,
    }


def _loading(run):
    """Load data in this process: workers would be other processes, without the mode."""
    loader = run.torch.utils.data.DataLoader
    original = loader.__init__

    def init(self, *args, **kwargs):
        args = list(args)
        for at, (name, value) in {
            5: ("num_workers", 0),
            7: ("pin_memory", False),
            9: ("timeout", 0),
            11: ("multiprocessing_context", None),
        }.items():
            if len(args) >= at:
                args[at - 1] = value
            elif name in kwargs:
                kwargs[name] = value
        for name in ("prefetch_factor", "persistent_workers", "pin_memory_device"):
            kwargs.pop(name, None)
        original(self, *args, **kwargs)

    loader.__init__ = init


def _distributed(run):
    torch = run.torch
    if not torch.distributed.is_available():
        return
    pretend_ranks(
        run,
        "one process of %d is estimated, the others are pretended: "
        "communication ends at once, and what real communication "
        "holds longer is not in the peak",
    )

    class DistributedDataParallel(torch.nn.Module):
        """Holds what torch's own class holds: the module, and buckets for its gradients in addition to the
        gradients, unless these are views of the buckets. torch's reducer reads addresses, so it cannot run
        here."""

        def __init__(
            self, module, device_ids=None, *args, bucket_cap_mb=25, gradient_as_bucket_view=False, **kwargs
        ):
            super().__init__()
            self.module, self.buckets = module, []
            run.note("DistributedDataParallel is modelled: buckets of the gradients, and no communication")
            if gradient_as_bucket_view:
                return
            sizes, cap = {}, 1 << 20  # the first bucket is small, so that reducing begins early
            for p in reversed(list(module.parameters())):
                if not p.requires_grad:
                    continue
                key = (p.dtype, p.device)
                held = sizes.get(key, 0) + p.numel()
                if held * p.element_size() >= cap:
                    self._bucket(held, key)
                    held, cap = 0, int((bucket_cap_mb or 25) * (1 << 20))
                sizes[key] = held
            for key, held in sizes.items():
                if held:
                    self._bucket(held, key)

        def _bucket(self, n, key):
            bucket = torch.empty(n, dtype=key[0], device=key[1])
            run.recorder.storages.of(bucket, "gradient")
            self.buckets.append(bucket)

        def forward(self, *args, **kwargs):
            return self.module(*args, **kwargs)

        @contextlib.contextmanager
        def no_sync(self):
            yield

        def join(self, *args, **kwargs):
            return contextlib.nullcontext()

    import torch.nn.parallel.distributed as parallel

    parallel.DistributedDataParallel = torch.nn.parallel.DistributedDataParallel = DistributedDataParallel


def _attention(run):
    """scaled_dot_product_attention asks the device to choose its kernel. Here we follow its rules: flash
    attention without a mask, in half precision and with compute capability 8; otherwise memory-efficient
    attention; plain mathematics if neither works."""
    torch = run.torch
    original, aten = torch.nn.functional.scaled_dot_product_attention, torch.ops.aten
    autocast = torch.is_autocast_enabled  # CUDA's, if called without a device
    flash = run.config["device"]["capability"][0] >= 8

    def attention(
        query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False
    ):
        def plain():
            more = {"enable_gqa": True} if enable_gqa else {}
            return original(
                query,
                key,
                value,
                attn_mask=attn_mask,
                dropout_p=dropout_p,
                is_causal=is_causal,
                scale=scale,
                **more,
            )

        if query.device.type != "cuda" or query.dim() != 4:
            return plain()
        if autocast() and query.dtype == torch.float32:
            kind = (
                torch.get_autocast_dtype("cuda")
                if hasattr(torch, "get_autocast_dtype")
                else torch.get_autocast_gpu_dtype()
            )
            query, key, value = query.to(kind), key.to(kind), value.to(kind)
            if attn_mask is not None and attn_mask.is_floating_point():
                attn_mask = attn_mask.to(kind)
        size, half = query.shape[-1], query.dtype in (torch.float16, torch.bfloat16)
        same = size == value.shape[-1]
        backends = torch.backends.cuda
        if flash and half and attn_mask is None and same and size <= 256 and backends.flash_sdp_enabled():
            pad = -size % 8
            scale = size**-0.5 if scale is None and pad else scale
            q, k, v = (
                (torch.nn.functional.pad(x, (0, pad)) for x in (query, key, value))
                if pad
                else (query, key, value)
            )
            out = aten._scaled_dot_product_flash_attention(q, k, v, dropout_p, is_causal, False, scale=scale)[
                0
            ]
            return out[..., :size] if pad else out
        grouped = query.shape[1] != key.shape[1]
        if (
            (half or query.dtype == torch.float32)
            and size % (8 if half else 4) == 0
            and not grouped
            and backends.mem_efficient_sdp_enabled()
        ):
            if attn_mask is not None:
                if attn_mask.dtype == torch.bool:
                    attn_mask = torch.where(
                        attn_mask, 0.0, torch.full((), float("-inf"), dtype=query.dtype, device=query.device)
                    )
                attn_mask = attn_mask.expand(query.shape[0], query.shape[1], query.shape[2], key.shape[2])
            grad = torch.is_grad_enabled() and (
                query.requires_grad or key.requires_grad or value.requires_grad
            )
            return aten._scaled_dot_product_efficient_attention(
                query, key, value, attn_mask, grad, dropout_p, is_causal, scale=scale
            )[0]
        return plain()

    torch.nn.functional.scaled_dot_product_attention = attention
