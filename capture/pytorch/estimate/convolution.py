"""What convolutions, and copies between a device and the host, take while they run.

A convolution's workspace is cuDNN's own choice, which depends on the card and the release, and no table says
what it is. The stand-in GPU asks for what one documented algorithm keeps (the indices of its matrix product,
four bytes for each step of the inner dimension), and this follows the same rule, so that both allocators
agree. Fast kernels on a card often ask for more.

A copy to the host needs its source as the host's tensor lies, which is made on the device first.

Source: capture/standin/src/cudnn.cpp; ATen/native/cudnn/Conv_v8.cpp; copy_requires_temporaries in
ATen/native/cuda/Copy.cu.
"""

INDEX = 4
EMPTIED = -1  # in the place of a size: the allocator's cache is given back


class Convolutions(object):
    """What convolutions take. PyTorch has kernels of its own for those of one channel a group."""

    def __init__(self, torch):
        self.cudnn, self.tried = torch.backends.cudnn, set()

    def taken(self, name, args):
        """Bytes that the op of this name takes for itself, one pass after the other, not rounded."""
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
        """With torch.backends.cudnn.benchmark, a pass over new shapes runs once more to be timed. PyTorch
        gives the allocator's cache back to the driver then."""
        taken = []
        for name, x, w, inner in passes:
            key = str((name, x.shape, x.dtype, x.stride(), w.shape, settings))
            if self.cudnn.benchmark and key not in self.tried:
                taken += [INDEX * inner, EMPTIED]
            self.tried.add(key)  # what ran without a trial keeps its plan
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
    """Bytes that a copy from the device to the host takes on the device, before they are rounded."""
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
