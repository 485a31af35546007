"""Shared by the laws. A law is a function whose docstring states it; the function raises if the law is
broken."""

import sys
import warnings

import torch

from standin_compute import report

ORDER = sys.argv[1]
LATE = ORDER == "late"
torch.backends.mkldnn.enabled = False
warnings.simplefilter("ignore")
torch.cuda.init()
laws, refusals = {}, {}


def law(f):
    """Add a law about what is computed."""
    laws[f.__name__] = f
    return f


def refusal(f):
    """Add a law about what is refused."""
    refusals[f.__name__] = f
    return f


def same(a, b, what="numbers"):
    """a and b have the same shape, dtype and bits."""
    a, b = a.detach().cpu(), b.detach().cpu()
    assert a.shape == b.shape and a.dtype == b.dtype, f"{what}: {a.shape} {a.dtype} and {b.shape} {b.dtype}"
    if a.is_complex():
        a, b = torch.view_as_real(a), torch.view_as_real(b)
    assert torch.equal(a, b), f"{what} differ by {(a.double() - b.double()).abs().max():.3g}"


def close(a, b, tolerance=1e-5, what="numbers"):
    """a and b are within a tolerance, relative for numbers above 1."""
    a, b = a.detach().cpu().double(), b.detach().cpu().double()
    assert a.shape == b.shape, f"{what}: {a.shape} and {b.shape}"
    worst = ((a - b).abs() / (1 + b.abs())).max()
    assert worst <= tolerance, f"{what} differ by {worst:.3g}"


def differ(a, b):
    """a and b are not equal."""
    assert not torch.equal(a.detach().cpu(), b.detach().cpu()), "the numbers are equal"


def refused(f, *words):
    """f raises an error that contains the words."""
    try:
        f()
        torch.cuda.synchronize()
        torch.ones(1, device="cuda").add_(1)
    except Exception as error:
        for w in words:
            assert w in str(error), f"{w!r} is not in {error}"
        return
    raise AssertionError("nothing was raised")


def forget_late_errors():
    """Clear errors that work of this law left, for the next one."""
    try:
        report.raise_late()
    except report.Uncomputed:
        pass
