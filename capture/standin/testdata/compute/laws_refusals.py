"""Laws of refusals: what is refused raises, says why, and is listed in the report."""

import torch
from torch import nn


from laws import refusal, refused, same


@refusal
def kernels_outside_of_ops_are_refused():
    """A kernel that is launched outside an op that we compute fails, and is named."""
    import ctypes

    name = b"void sum_of_all<float>(float*)"
    runtime, stub = ctypes.CDLL(None), ctypes.c_int()
    runtime.__getattr__("__cudaRegisterFunction")(
        None, ctypes.byref(stub), None, name, 0, None, None, None, None, None
    )

    class Dimensions(ctypes.Structure):
        _fields_ = [("x", ctypes.c_uint), ("y", ctypes.c_uint), ("z", ctypes.c_uint)]

    one = Dimensions(1, 1, 1)
    assert runtime.cudaLaunchKernel(ctypes.byref(stub), one, one, None, ctypes.c_size_t(0), None) == 801
    assert runtime.cudaGetLastError() == 801


@refusal
def sparse_tensors_are_refused():
    """Computing with sparse tensors raises an error that names the op."""
    i = torch.tensor([[0, 1], [1, 0]], device="cuda")
    s = torch.sparse_coo_tensor(i, torch.ones(2, device="cuda"), (2, 2))
    refused(
        lambda: torch.sparse.mm(s, torch.ones(2, 2, device="cuda")),
        "not computed on the stand-in GPU",
        "sparse",
    )
    e = nn.Embedding(5, 3, sparse=True).cuda()
    e(torch.tensor([1, 2], device="cuda")).sum().backward()
    refused(lambda: torch.optim.SparseAdam(e.parameters()).step(), "not computed on the stand-in GPU")


@refusal
def compiled_code_is_refused():
    """torch.compile with inductor raises an error that says why; backends that run ops work."""
    refused(
        lambda: torch.compile(lambda t: t.sin() + t.cos())(torch.ones(8, device="cuda")),
        "Triton kernels cannot run on the stand-in GPU",
    )
    f = torch.compile(lambda t: t.sin() + t.cos(), backend="aot_eager")
    same(f(torch.ones(8, device="cuda")), torch.ones(8).sin() + torch.ones(8).cos())


@refusal
def dropout_in_cudnns_networks_is_refused():
    """A refusal says what to do instead."""
    lstm = nn.LSTM(4, 4, 2, dropout=0.5).cuda()
    refused(
        lambda: lstm(torch.ones(3, 1, 4, device="cuda")),
        "_cudnn_rnn",
        "set torch.backends.cudnn.enabled = False",
    )


@refusal
def triton_kernels_are_refused():
    """A user's own Triton kernel raises an error that says why."""
    import triton

    @triton.jit
    def nothing(x):
        pass

    refused(
        lambda: nothing[(1,)](torch.ones(8, device="cuda")), "Triton kernels cannot run on the stand-in GPU"
    )
