"""The memory that convolutions, and copies from the device to the host, take while they run.

cuDNN chooses the workspace of a convolution by card and release, and no table documents its choice. The
stand-in GPU requests what one documented algorithm needs (the indices of its matrix product, four bytes for
each step of the inner dimension). We use the same rule, so that both allocators agree. Fast kernels on a real
card often request more.

A copy to the host needs its source in the layout of the host's tensor, so the device makes that first.

Source: capture/standin/src/cudnn.cpp; ATen/native/cudnn/Conv_v8.cpp; copy_requires_temporaries in
ATen/native/cuda/Copy.cu.
"""

from .engine import dense

INDEX = 4
EMPTIED = -1  # instead of a size: the allocator's cache is emptied


class Convolutions:
    """The memory that convolutions take. PyTorch has its own kernels for those with one channel per group."""

    def __init__(self, torch):
        self.cudnn, self.tried = torch.backends.cudnn, set()

    def taken(self, name, args):
        """The bytes that this op takes for itself, one pass after the other, not rounded."""
        if not self.cudnn.enabled or name not in ("aten::convolution", "aten::convolution_backward"):
            return ()
        if name == "aten::convolution":
            x, w, transposed, groups = args[0], args[1], args[6], args[8]
            if _each_alone(x, groups, transposed):
                return ()
            inner = _data(w, groups) if transposed else _forward(w)
            return self._tried(args[3:], (("forward", x, w, inner),))
        y, x, w, transposed, groups, wanted = args[0], args[1], args[2], args[7], args[9], args[10]
        if _each_alone(x, groups, transposed):
            return ()
        passes = []
        if wanted[0]:
            passes.append(("data", x, w, _forward(w) if transposed else _data(w, groups)))
        if wanted[1]:
            passes.append(("filter", x, w, _positions(x if transposed else y)))
        return self._tried(args[4:10], passes)

    def _tried(self, settings, passes):
        """With torch.backends.cudnn.benchmark, a pass over new shapes runs an extra time to be timed. PyTorch
        then returns the allocator's cache to the driver."""
        taken = []
        for name, x, w, inner in passes:
            key = str((name, x.shape, x.dtype, x.stride(), w.shape, settings))
            if self.cudnn.benchmark and key not in self.tried:
                taken += [INDEX * inner, EMPTIED]
            self.tried.add(key)  # a shape that ran without a trial keeps its plan
            taken.append(INDEX * inner)
        return tuple(taken)


def _each_alone(x, groups, transposed):
    return not transposed and groups > 1 and groups == x.shape[1]


def _product(sizes):
    n = 1
    for size in sizes:
        n *= size
    return n


def _forward(w):
    return _product(w.shape[1:])


def _data(w, groups):
    return w.shape[0] // groups * _product(w.shape[2:])


def _positions(y):
    return y.shape[0] * _product(y.shape[2:])


def taken_by_copy(name, args, out):
    """The bytes that a copy from the device to the host takes on the device, not rounded."""
    if name == "aten::copy_":
        into, source = args[0], args[1]
    elif name == "aten::_to_copy":
        into, source = out, args[0]
    else:
        return 0
    if into.device.type != "cpu" or source.device.type == "cpu" or source.is_contiguous():
        return 0
    like = into.dtype == source.dtype and into.shape == source.shape and into.stride() == source.stride()
    if like and dense(into):
        return 0
    return into.numel() * source.element_size()
