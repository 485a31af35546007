"""The workspace of a matrix product on a GPU.

From 2.12 on PyTorch takes it from its allocator for as long as the product is launched. cuBLAS gets as much
as PyTorch chose for the card's generation, or as CUBLAS_WORKSPACE_CONFIG says. A product with a bias goes to
cuBLASLt where that can add it, which gets CUBLASLT_WORKSPACE_SIZE. Older releases keep the workspace, and are
not described here. Nor are the copies of matrices that cuBLAS cannot read as they are.

Source: CublasHandlePool.cpp in ATen/cuda, isInputCompliesAddmmCudaLt in ATen/native/cuda/Blas.cpp, and the
allocations of PyTorch 2.15 on the stand-in.
"""

import os
import re

# Where the two matrices, or the matrix and the vector, stand among the arguments.
PRODUCTS = {
    "aten::mm": 0,
    "aten::bmm": 0,
    "aten::mv": 0,
    "aten::dot": 0,
    "aten::vdot": 0,
    "aten::addmm": 1,
    "aten::addmm_": 1,
    "aten::_addmm_activation": 1,
    "aten::baddbmm": 1,
    "aten::baddbmm_": 1,
    "aten::addmv": 1,
    "aten::addmv_": 1,
}
FUSED = ("aten::addmm", "aten::_addmm_activation")  # may have their bias added by cuBLASLt
KIB = 1024


class Products(object):
    """What matrix products take on one device with one release of torch."""

    def __init__(self, torch, device, environ=os.environ):
        self.known = tuple(int(n) for n in re.findall(r"\d+", torch.__version__)[:2]) >= (2, 12)
        self.half = torch.float16, torch.bfloat16
        self.fused = self.half + (torch.float32, torch.float64)
        hopper = device["capability"][0] == 9
        self.cublas = 4096 * 8 * KIB if hopper else (4096 * 2 + 16 * 8) * KIB
        chosen = environ.get("CUBLAS_WORKSPACE_CONFIG", "")
        if re.match(r"(:\d+:\d+)+$", chosen):
            pairs = re.findall(r":(\d+):(\d+)", chosen)
            self.cublas = sum(int(size) * int(count) for size, count in pairs) * KIB
        self.cublaslt = KIB * KIB
        if environ.get("CUBLASLT_WORKSPACE_SIZE", "").isdigit():
            self.cublaslt = int(environ["CUBLASLT_WORKSPACE_SIZE"]) * KIB

    def taken(self, name, args, kwargs, out):
        """Bytes that the op of this name takes for itself."""
        first = PRODUCTS.get(name)
        if first is None or not self.known or len(args) < first + 2:
            return 0
        left, right = args[first], args[first + 1]
        if out.numel() == 0 or left.numel() == 0:
            return 0  # nothing is launched
        if name in FUSED and self._by_cublaslt(args[0], left, right, kwargs):
            return self.cublaslt
        return self.cublas

    def _by_cublaslt(self, bias, left, right, kwargs):
        if kwargs.get("beta", 1) != 1 or left.dtype not in self.fused:
            return False
        if 1 in left.shape or 1 in right.shape:
            return False
        if bias.dim() == 1:
            return bias.is_contiguous() and bias.shape[0] == right.shape[1]
        return left.dtype in self.half
