"""The buffer that a reduction on a GPU takes for itself.

If each of a few outputs is reduced from many inputs, like the gradient of a bias, PyTorch's kernel splits the
inputs over thread blocks, which leave their partial results in a buffer. It exists only while the kernel is
launched, but it can be larger than the inputs, and so be part of the peak.

Source: setReduceConfig and get_output_vec_size in ATen/native/cuda/Reduce.cuh, TensorIterator's order of
dimensions.
"""

REDUCTIONS = ("aten::sum", "aten::mean", "aten::linalg_vector_norm")
WARP, MOST_THREADS, VECTOR = 32, 512, 4
LEAST_VALUES, MOST_VALUES = 16, 256  # per thread


def threads_of(capability):
    """The most threads of a multiprocessor, by compute capability."""
    major, minor = capability
    return 1024 if (major, minor) == (7, 5) else 1536 if major in (8, 12) and minor else 2048


class Reductions:
    """The buffers of reductions on one device."""

    def __init__(self, device):
        self.processors, self.threads = device["processors"], threads_of(device["capability"])

    def taken(self, name, t, out):
        """The bytes that this op takes for itself to reduce t to out, not rounded."""
        if name not in REDUCTIONS or t.numel() == 0 or out.numel() == 0 or t.numel() == out.numel():
            return 0
        kept = list(out.shape)
        if out.dim() != t.dim():  # without keepdim: the first dimensions that match stay
            kept, left = [], list(out.shape)
            for n in t.shape:
                kept.append(left.pop(0) if left and left[0] == n else 1)
            if left:
                return 0
        sizes = list(t.shape)
        while sum((n - 1) * s for n, s in zip(sizes, t.stride())) * t.element_size() > 2**31 - 1:
            k = max(range(len(sizes)), key=lambda k: (sizes[k] - 1) * t.stride()[k])
            sizes[k] -= sizes[k] // 2  # what 32-bit offsets cannot reach is reduced in parts
            kept[k] = min(kept[k], sizes[k])
        reduced = _merged((s, n) for s, n, m in zip(t.stride(), sizes, kept) if m == 1 and n > 1)
        outputs = _merged((s, n) for s, n, m in zip(t.stride(), sizes, kept) if m > 1)
        each = max(t.element_size(), 4) if t.is_floating_point() else 8
        return self.buffer(reduced, outputs, each)

    def buffer(self, reduced, outputs, each):
        """The bytes of the buffer. Dimensions are pairs of a stride and a size, the fastest first."""
        inputs, results = _size(reduced), _size(outputs)
        along = not outputs or bool(reduced) and reduced[0][0] < outputs[0][0]
        width, height = (inputs, results) if along else (results, inputs)
        fastest, vector = (reduced if along else outputs)[0][0], 1
        if fastest == 1 and along and width >= 128 and len(reduced) == 1:
            width //= VECTOR
        elif fastest == 1 and not along:
            vector = VECTOR
            while any(x % vector for x in [outputs[0][1]] + [s for s, _ in reduced + outputs[1:]]):
                vector //= 2
            width //= vector
        most = MOST_THREADS // vector
        wide, high = min(_power(width), most), min(_power(height), most)
        across = min(wide, WARP)
        down = min(high, most // across)
        across = min(wide, most // down)
        step_in, step_out = (across, 1) if along else (1, across)
        if _parts(inputs, step_in) < min(down * 16, MOST_VALUES):
            return 0
        step_in *= down
        grid, values = _parts(results // vector, step_out), _parts(inputs, step_in)
        wanted = self.processors * (self.threads // (across * down))
        if values < MOST_VALUES or grid > wanted:
            return 0
        most, least = _parts(values, LEAST_VALUES), _parts(values, MOST_VALUES)
        blocks = min(max(_parts(wanted, grid), least), most)
        if blocks <= 1:
            return 0
        return each * results * blocks * (1 if along else across * vector)


def _size(dims):
    n = 1
    for _, size in dims:
        n *= size
    return n


def _power(n):
    return 1 << max(n, 1).bit_length() - 1


def _parts(n, of):
    return -(-n // of)


def _merged(dims):
    """Dimensions by stride, with contiguous ones merged."""
    out = []
    for stride, size in sorted(dims):
        if out and out[-1][0] * out[-1][1] == stride:
            out[-1] = (out[-1][0], out[-1][1] * size)
        else:
            out.append((stride, size))
    return out
