"""True numbers on the stand-in GPU.

The problem. The stand-in runs PyTorch's own CUDA build, but its kernels do nothing. A training on it
allocates, copies and waits as on a GPU, and its numbers are garbage. To test that a plan leaves parameters
equal to the bit, and that a missing wait shows, the numbers have to be true.

The way chosen. Device memory is host memory. For each op of ATen that has a CUDA kernel we put a function of
ours in its place (dispatch.py). It runs the CUDA kernel's host code first: that makes the real allocations,
the real checks and the real errors, and what it launches does nothing. Then it runs the *CPU* kernel of the
same op on CPU tensors that lie in the same memory (alias.py), as work of the stream on which the CUDA kernel
would have run (work.py). Ops that other ops call inside their host code are memory only: the outer op
computes.

    rules.py       which ops are memory only, which read device memory on the host, which are refused
    random.py      draws that depend on the CUDA generator's seed and offset
    attention.py   flash, efficient and cuDNN attention
    shaped.py      results whose size depends on the data; libraries that do nothing here (cuSOLVER, cuFFT)
    recurrent.py   recurrent networks
    substitutes.py ops without a CPU kernel of the same name: cuDNN's, synchronised batch norm, products
    refuse.py      sparse and quantized tensors, Triton kernels, torch.compile
    report.py      what was computed and what was not

Laws. Two runs of a program are equal to the bit, in every order of work. The same seed and offset of the CUDA
generator give the same numbers, others give others; they are not the numbers of a GPU. float16 and bfloat16
compute in float32 and round once, as tensor cores and CUDA's opmath do. What cannot be computed raises a
RuntimeError that names the op, and is listed in the report. With STANDIN_COMPUTE=note the op is listed and
the program goes on (sparse tensors still raise).

Cost. Each op costs some 50 microseconds of Python beside the CPU kernel itself.

The ways rejected. A TorchDispatchMode sees one thread and shows in the program's own modes. Kernels of our
own would have to follow each release. A CPU tensor behind a CUDA device label would not run the CUDA code
that we want tested.

Source: PyTorch's dispatcher and its documentation ("Extending PyTorch", torch.library).
"""

from .dispatch import install

__all__ = ["install"]
