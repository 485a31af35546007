"""Compare ops on the stand-in GPU with the CPU's, on the samples of PyTorch's own op database.

    python sweep_ops.py [--dtype float32] [--samples 4] [--only NAME,...] [--skip NAME,...] [--first N]
    [--every K]

Prints one line for each op: its name, and one of
    agrees     results and gradients have the CPU's bits, or are within the tolerance of the dtype
    random     the op draws random numbers: shapes and dtypes agree
    refused    the op raised the error that it is not computed
    memory     the op leaves its result uninitialised
    cpu-lacks  the CPU has no kernel to compare with
    cuda-lacks CUDA has no such kernel
    DIFFERS    and why: a wrong number, shape or error

The CPU's results are the reference. We use the same kernels, so a difference means that the op was computed
from the wrong arguments, at the wrong time or into the wrong memory, which is what can go wrong here. What a
substitute computes (substitutes.py, attention.py), the CPU has under another name, with its own code.
"""

import argparse
import copy
import sys
import types
import unittest
import warnings

import torch

# The op database imports a package for golden tests that it does not use and that wheels do not include.
sys.modules.setdefault("expecttest", types.SimpleNamespace(TestCase=unittest.TestCase))
warnings.simplefilter("ignore")
torch.backends.mkldnn.enabled = False  # the CPU's convolutions are then those that we use

from torch.testing._internal.common_methods_invocations import op_db  # noqa: E402

# Many entries of the database seed the generator themselves: we would not see that they draw, and take their
# draws for differences.
for module in [
    m
    for n, m in sys.modules.items()
    if n.startswith("torch.testing._internal") and hasattr(m, "wrapper_set_seed")
]:
    module.wrapper_set_seed = lambda op, *args, **kwargs: op(*args, **kwargs)

# What PyTorch says if CUDA has no kernel.
CUDA_LACKS = (
    "with arguments from the 'CUDA'",
    "with arguments from the 'SparseCsrCUDA'",
    "to be on cpu, but it's on cuda",
    '_cuda" not implemented for',
    '"histc" not implemented for',
)
MEMORY = {
    "empty",
    "empty_like",
    "empty_permuted",
    "empty_strided",
    "new_empty",
    "new_empty_strided",
    "resize_",
    "resize_as_",
}
TOLERANCE = {torch.float32: (2e-4, 2e-4), torch.bfloat16: (4e-2, 4e-2), torch.float16: (1e-2, 1e-2)}


def moved(device, x):
    """Move a tensor. If it is part of a larger storage, it stays so: some ops reach beyond their view."""
    if x.layout != torch.strided or x.untyped_storage().nbytes() <= x.numel() * x.element_size():
        return x.to(device)
    whole = torch.empty(0, dtype=x.dtype).set_(x.untyped_storage())
    return whole.to(device).as_strided(x.shape, x.stride(), x.storage_offset())


def to(device, x, memo):
    """Move the tensors of a sample; views of one tensor stay views of one."""
    if isinstance(x, torch.Tensor):
        if id(x) not in memo:
            memo[id(x)] = moved(device, x.detach()).requires_grad_(x.requires_grad)
        return memo[id(x)]
    if isinstance(x, (list, tuple)):
        items = [to(device, y, memo) for y in x]
        return type(x)(*items) if hasattr(x, "_fields") else type(x)(items)
    if isinstance(x, dict):
        return {k: to(device, v, memo) for k, v in x.items()}
    if isinstance(x, torch.device) or x == "cpu":
        return torch.device(device)
    return x


def flat(x):
    if isinstance(x, torch.Tensor):
        return [x]
    if isinstance(x, (list, tuple)):
        return [t for y in x for t in flat(y)]
    return [] if x is None else [x]


def run(op, sample, device, gradients):
    """Return the op's results, and the gradients of its inputs for a gradient that depends on the shapes."""
    memo = {}
    first, args, kwargs = (
        to(device, sample.input, memo),
        to(device, sample.args, memo),
        to(device, sample.kwargs, memo),
    )
    torch.manual_seed(7)
    out = flat(op(first, *args, **kwargs))
    results = [t.detach().clone() if isinstance(t, torch.Tensor) else t for t in out]
    if not gradients:
        return results
    out = [
        t
        for t in flat(sample.output_process_fn_grad(out if len(out) > 1 else out[0]))
        if isinstance(t, torch.Tensor) and t.requires_grad
    ]
    leaves = [t for t in memo.values() if t.requires_grad and t.is_leaf]
    if not out or not leaves:
        return results
    weights = [
        torch.linspace(-1, 1, max(t.numel(), 1))[: t.numel()].reshape(t.shape).to(t.dtype).to(device)
        for t in out
    ]
    grads = torch.autograd.grad(out, leaves, weights, allow_unused=True)
    return results + [g for g in grads if g is not None]


def compare(a, b, dtype):
    """Return "equal", "close", or what differs between the CPU's result a and the device's b."""
    if not isinstance(a, torch.Tensor) or not isinstance(b, torch.Tensor):
        return "equal" if a == b or (a != a and b != b) else f"{a} and {b}"
    if a.shape != b.shape or a.dtype != b.dtype:
        return f"{tuple(a.shape)} {a.dtype} and {tuple(b.shape)} {b.dtype}"
    b = b.cpu()
    if a.layout != torch.strided or b.layout != torch.strided:
        a, b = a.to_dense(), b.to_dense()
    a, b = a.resolve_conj().resolve_neg(), b.resolve_conj().resolve_neg()
    if torch.equal(
        torch.view_as_real(a) if a.is_complex() else a, torch.view_as_real(b) if b.is_complex() else b
    ):
        return "equal"
    if not a.is_floating_point() and not a.is_complex():
        return f"{int((a != b).sum())} of {a.numel()} numbers"
    rtol, atol = TOLERANCE[dtype]
    atol = atol * max(1.0, float(a.abs().nan_to_num(posinf=0).max())) if dtype != torch.float32 else atol
    if torch.allclose(a, b, rtol, atol, equal_nan=True):
        same = (a == b) | (a.isnan() & b.isnan())
        return "equal" if bool(same.all()) else "close"
    wide = torch.complex128 if a.is_complex() else torch.float64
    return f"numbers, by {float((a.to(wide) - b.to(wide)).abs().nan_to_num(posinf=1e30).max()):.3g}"


DRAWS = {
    "cauchy",
    "exponential",
    "geometric",
    "log_normal",
    "normal",
    "uniform",
    "bernoulli",
    "multinomial",
    "rand_like",
    "randn_like",
    "randn",
    "randint",
    "randint_like",
}


def seeded(op, sample):
    """Whether an op draws random numbers: on the CPU, two seeds give two results."""
    if op.name in DRAWS:
        return True
    try:
        results = []
        for seed in (1, 2):
            memo = {}
            args = to("cpu", sample.input, memo), to("cpu", sample.args, memo), to("cpu", sample.kwargs, memo)
            torch.manual_seed(seed)
            with torch.no_grad():
                results.append(
                    [
                        t.detach().clone()
                        for t in flat(op(args[0], *args[1], **args[2]))
                        if isinstance(t, torch.Tensor)
                    ]
                )
        return any(not torch.equal(a, b) for a, b in zip(*results) if not (a != a).any())
    except Exception:
        return False


def short(error):
    return (str(error).splitlines() or [""])[0].split("is not computed on the stand-in GPU: ")[-1][:130]


def judge(op, dtype, count):
    name = op.name
    if name in MEMORY:
        return "memory"
    gradients = op.supports_autograd and dtype == torch.float32 and name not in ("svd_lowrank", "pca_lowrank")
    verdict = "cpu-lacks"
    samples = op.sample_inputs("cpu", dtype, requires_grad=gradients)
    for i, sample in enumerate(samples):
        if i >= count:
            break
        try:
            want = run(op, copy.copy(sample), "cpu", gradients)
        except Exception:
            continue
        draws = seeded(op, sample)
        try:
            got = run(op, copy.copy(sample), "cuda", gradients)
        except Exception as error:
            if any(words in str(error) for words in CUDA_LACKS):
                return "cuda-lacks"
            if type(error).__name__ == "Uncomputed":
                return f"refused {short(error)}"
            return f"DIFFERS raises {type(error).__name__}: {short(error)}"
        if draws:
            alike = [
                x.shape == y.shape and x.dtype == y.dtype
                for x, y in zip(want, got)
                if isinstance(x, torch.Tensor)
            ]
            verdict = "random" if all(alike) else "DIFFERS in shape"
            continue
        if len(want) != len(got):
            return f"DIFFERS in the count of results, {len(want)} and {len(got)}"
        for x, y in zip(want, got):
            found = compare(x, y, dtype)
            if found not in ("equal", "close"):
                print(f"{name}: {found} for {str(sample)[:500]}", file=sys.stderr)
                return f"DIFFERS in {found.split(', by')[0]}"
            verdict = "random" if verdict == "random" else "agrees"
    return verdict


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--dtype", default="float32")
    p.add_argument("--samples", type=int, default=4)
    p.add_argument("--only", default="")
    p.add_argument("--skip", default="")
    p.add_argument("--first", type=int, default=0)
    p.add_argument("--every", type=int, default=1)
    args = p.parse_args()
    dtype = getattr(torch, args.dtype)
    only, skip = set(filter(None, args.only.split(","))), set(filter(None, args.skip.split(",")))
    for i, op in enumerate(op_db):
        name = op.name + ("." + op.variant_test_name if op.variant_test_name else "")
        if (
            i < args.first
            or i % args.every
            or (only and name not in only)
            or name in skip
            or dtype not in op.supported_dtypes("cpu")
        ):
            continue
        print(name, end=" ", flush=True)
        try:
            print(judge(op, dtype, args.samples), flush=True)
        except Exception as error:
            print(f"DIFFERS the sample raises {type(error).__name__}: {short(error)}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
