"""Correct numbers on the stand-in GPU.

The problem. The stand-in runs PyTorch's own CUDA build, but its kernels do nothing. A training on it
allocates, copies and waits as on a GPU, but its numbers are garbage. To test that a plan leaves parameters
equal to the bit, and that a missing wait shows, the numbers must be correct.

The solution. Device memory is host memory. We replace the CUDA kernel of each ATen op by a function of ours
(dispatch.py). It first runs the CUDA kernel's host code, which makes the real allocations, checks and errors;
what that launches does nothing. Then it runs the *CPU* kernel of the same op on CPU tensors in the same
memory (alias.py), as work of the stream on which the CUDA kernel would have run (work.py). If an op calls
other ops inside its host code, those only allocate memory: the outer op computes.

    rules.py       which ops are memory only, which read device memory on the host, which are refused
    random.py      draws that depend on the CUDA generator's seed and offset
    attention.py   flash, efficient and cuDNN attention
    shaped.py      results whose size depends on the data; libraries that do nothing here (cuSOLVER, cuFFT)
    recurrent.py   recurrent networks
    substitutes.py ops without a CPU kernel of the same name: cuDNN's, synchronised batch norm, products
    refuse.py      sparse and quantized tensors, Triton kernels, torch.compile
    report.py      what was computed and what was not

Laws. Two runs of a program are equal to the bit, in every order of work. The same seed and offset of the CUDA
generator give the same numbers, different ones give different numbers; they are not the numbers of a GPU.
float16 and bfloat16 compute in float32 and round once, as tensor cores and CUDA's opmath do. An op that
cannot be computed raises a RuntimeError that names it, and is listed in the report. With STANDIN_COMPUTE=note
it is only listed, and the program goes on (sparse tensors still raise).

Cost. Each op costs some 50 microseconds of Python besides the CPU kernel itself.

Rejected. A TorchDispatchMode sees only one thread and is visible to the program's own modes. Kernels of our
own would have to follow each release. A CPU tensor with a CUDA device label would not run the CUDA code that
we want to test.

Source: PyTorch's dispatcher and its documentation ("Extending PyTorch", torch.library).
"""

from .dispatch import install

__all__ = ["install"]
