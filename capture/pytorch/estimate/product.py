"""The workspace of a matrix product on a GPU.

From 2.12 on, PyTorch takes it from its allocator only while the product is launched. cuBLAS gets the size
that PyTorch chose for the card's generation, or the one in CUBLAS_WORKSPACE_CONFIG. A product with a bias
goes to cuBLASLt if that can add the bias, and cuBLASLt gets CUBLASLT_WORKSPACE_SIZE. Not covered: older
releases, which keep the workspace, and the copies of matrices that cuBLAS cannot read as they are.

Source: CublasHandlePool.cpp in ATen/cuda, isInputCompliesAddmmCudaLt in ATen/native/cuda/Blas.cpp, and the
allocations of PyTorch 2.15 on the stand-in.
"""

import os
import re

# The positions of the two matrices, or the matrix and the vector, among the arguments.
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
FUSED = ("aten::addmm", "aten::_addmm_activation")  # cuBLASLt may add their bias
KIB = 1024


class Products:
    """The workspaces of matrix products on one device with one release of torch."""

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
        """The bytes that this op takes for itself."""
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
