"""Recurrent networks on cuDNN, for tensors without memory.

On the way to cuDNN, PyTorch asks CUDA itself. So we replace lstm(), gru() and rnn_*() by what they do there:
the weights are in one buffer, one op runs all layers and all steps, and one op is its backward pass. Besides
their results, both allocate a reserve that lives until the backward pass and a workspace that does not.

cuDNN chooses both sizes and does not document them. The stand-in GPU takes what the textbook formulas need,
and we use the same rule, so that both allocators agree. For a real card it is a guess.

Under autocast, each call of PyTorch copies the weights into a new buffer in half precision.

Source: ATen/native/cudnn/RNN.cpp and ATen/cudnn/AutocastRNN.cpp; capture/standin/src/cudnn_rnn.cpp and
cudnn.cpp.
"""

import functools

GATES = {"rnn_relu": 1, "rnn_tanh": 1, "lstm": 4, "gru": 3}
MODES = {"rnn_relu": 0, "rnn_tanh": 1, "lstm": 2, "gru": 3}
DROPOUT_STATE = 16 * 2048  # bytes, for the threads of one multiprocessor


class Network:
    """The sizes of one pass, from the arguments of aten::_cudnn_rnn, starting with the mode."""

    def __init__(self, x, mode, hidden, projection, layers, batch_first, dropout, train, both, lengths):
        self.mode, self.hidden, self.output = int(mode), int(hidden), int(projection or hidden)
        self.layers, self.directions, self.train = int(layers), 2 if both else 1, train
        self.first, self.packed = batch_first and not lengths, bool(lengths)
        if lengths:
            self.steps, self.batch = len(lengths), int(lengths[0])
        else:
            steps, batch = x.shape[:2]
            self.steps, self.batch = (batch, steps) if self.first else (steps, batch)
        self.gates = {0: 1, 1: 1, 2: 4, 3: 3}[self.mode]

    def space(self, x):
        """The bytes of the workspace and of the reserve."""
        state = self.steps * self.batch * self.hidden * self.directions * x.element_size()
        kept = self.gates + (2 if self.mode == 2 else 1)
        return state * self.gates, state * self.layers * kept if self.train else 0

    def copies(self, *tensors):
        """The bytes of the time-first copies."""
        return tuple(
            t.numel() * t.element_size()
            for t in tensors
            if t is not None and not (t.transpose(0, 1) if self.first else t).is_contiguous()
        )

    def results(self, x):
        """An empty tensor for the output; batch-first, it is a view of a time-first one."""
        wide = self.output * self.directions
        if self.packed:
            return x.new_empty((x.shape[0], wide))
        out = x.new_empty((self.steps, self.batch, wide))
        return out.transpose(0, 1) if self.first else out


class Blocks:
    """Notes what an op makes and takes for itself, in PyTorch's order: the order decides which cached block
    serves which request."""

    def __init__(self, recorder, op):
        self.recorder, self.op = recorder, op

    def makes(self, t):
        recorder = self.recorder
        recorder.storages.of(t, None, False, recorder.clock(), recorder.phases.now())
        return t

    def takes(self, on, sizes):
        """Take blocks that are freed before the op ends. Returns the argument for gives_back()."""
        return [self.recorder.storages.workspace(self.op, str(on), size, 0) for size in sizes]

    def gives_back(self, numbers):
        rows = self.recorder.rows
        for number in numbers:
            rows.add(("f", number, rows.last))


def forward(torch, blocks, x, weight, stride, buffer, hx, cx, *shape):
    """aten::_cudnn_rnn without values."""
    net = Network(x, *shape[:-1])
    work, kept = net.space(x)
    copied = blocks.takes(x.device, net.copies(x))
    output, hy = blocks.makes(net.results(x)), blocks.makes(torch.empty_like(hx))
    cy = blocks.makes(torch.empty_like(cx)) if cx is not None else hx.new_empty((0,))
    space = blocks.takes(x.device, (work,))
    reserve = blocks.makes(x.new_empty((kept,), dtype=torch.uint8))
    blocks.gives_back(space + copied)
    return output, hy, cy, reserve, buffer


def backward(torch, blocks, x, weight, stride, buffer, hx, cx, output, dy, dhy, dcy, *shape):
    """aten::_cudnn_rnn_backward without values: the gradients of the weights are views of one buffer.
    Gradients of unused states are zeros."""
    net, wanted = Network(x, *shape[:-3]), shape[-1]
    if dy is None and dhy is None and dcy is None:
        return None, None, None, [None] * len(weight)
    unused = [state for state, grad in ((hx, dhy), (cx, dcy)) if state is not None and grad is None]
    zeros = blocks.takes(x.device, [state.numel() * state.element_size() for state in unused])
    work = net.space(x)[0]
    copied = blocks.takes(x.device, net.copies(x, dy))
    if net.first:
        dx = x.new_empty((net.steps, net.batch, x.shape[2])).transpose(0, 1)
    else:
        dx = torch.empty_like(x)
    blocks.makes(dx)
    dhx = blocks.makes(torch.empty_like(hx))
    dcx = blocks.makes(torch.empty_like(cx)) if cx is not None else None
    blocks.gives_back(blocks.takes(x.device, (work,)) + copied)
    weights = [None] * len(weight)
    if wanted[3]:
        copied = blocks.takes(x.device, net.copies(x))
        weights = views_of(blocks.makes(torch.zeros_like(buffer)), weight)
        blocks.gives_back(blocks.takes(x.device, (work,)) + copied)
    blocks.gives_back(zeros)
    return dx, dhx, dcx, weights


def views_of(buffer, weights):
    """Views of a buffer that has the weights in cuDNN's order: all matrices, then all biases."""
    at, out = 0, [None] * len(weights)
    for dim in (2, 1):
        for i, w in enumerate(weights):
            if w.dim() == dim:
                out[i] = buffer[at : at + w.numel()].view(w.shape)
                at += w.numel()
    return out


def packing(torch):
    """_pack_padded_sequence without values. Unknown lengths count as the longest."""

    class Packed(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, rows):
            ctx.shape = x.shape
            return x.new_empty((rows, *x.shape[2:]))

        @staticmethod
        def backward(ctx, grad):
            return grad.new_zeros(ctx.shape), None

    def pack(x, lengths, batch_first):
        x = x.transpose(0, 1) if batch_first else x
        steps, batch = x.shape[:2]
        known = lengths.tolist() if lengths.constant is not None else [steps] * batch
        sizes = [sum(n > step for n in known) for step in range(max(known))]
        return Packed.apply(x, sum(sizes)), torch.tensor(sizes)

    return pack


def padded(torch, data, sizes, batch_first, value, total):
    """Does what _pad_packed_sequence does, in runs of steps that have equally many sequences."""
    steps, batch = max(total, len(sizes)), sizes[0]
    out = torch.full((steps, batch, *data.shape[1:]), value, dtype=data.dtype, device=data.device)
    begin = at = 0
    for end in range(1, len(sizes) + 1):
        if end < len(sizes) and sizes[end] == sizes[begin]:
            continue
        n = (end - begin) * sizes[begin]
        run = data[at : at + n].view(end - begin, sizes[begin], *data.shape[1:])
        out[begin:end, : sizes[begin]] = run
        begin, at = end, at + n
    lengths = [sum(i < size for size in sizes) for i in range(batch)]
    return out.transpose(0, 1) if batch_first else out, torch.tensor(lengths)


NETWORKS = {"aten::_cudnn_rnn": forward, "aten::_cudnn_rnn_backward": backward}


def run_networks_without_cuda(run):
    """Replace the functions that ask CUDA."""
    torch, buffers = run.torch, {}
    functions, modules = torch._VF, torch.nn.modules.rnn
    flatten = modules.RNNBase.flatten_parameters
    kinds = (torch.float16, torch.float32, torch.float64, torch.bfloat16)
    castable = (torch.float32, torch.bfloat16)

    def flattened(self):
        weights = self._flat_weights
        if (
            not torch.backends.cudnn.enabled
            or not weights
            or not all(isinstance(w, run.fake) and w.is_cuda and w.dtype == weights[0].dtype for w in weights)
        ):
            return flatten(self)
        with torch.no_grad():
            buffer = torch.zeros(
                sum(w.numel() for w in weights), dtype=weights[0].dtype, device=weights[0].device
            )
            for w, view in zip(weights, views_of(buffer, weights)):
                w.data = view

    def buffer_of(weights):
        storage, n = weights[0].untyped_storage(), sum(w.numel() for w in weights)
        if all(w.untyped_storage()._cdata == storage._cdata for w in weights):
            return weights[0].detach().as_strided((n,), (1,), 0)
        return weights[0].new_empty((n,))

    def halved(t):
        """What autocast does to an argument of cuDNN's call: cast it to half precision, whatever type
        autocast is set to."""
        return t.half() if t is not None and t.dtype in castable else t

    def halves_of(weights, buffer):
        """Copies of the weights in one half-precision buffer, which pass their gradients on."""
        if weights[0].dtype not in castable:
            return weights, buffer
        buffer = torch.zeros(sum(w.numel() for w in weights), dtype=torch.float16, device=weights[0].device)
        copies = [view.detach() for view in views_of(buffer, weights)]
        for copy, w in zip(copies, weights):
            copy.copy_(w)
        return copies, buffer

    def dropout_state(device, dropout, train):
        if not train or dropout == 0:
            return None
        if device not in buffers:
            size = DROPOUT_STATE * run.config["device"]["processors"]
            buffers[device] = torch.empty(size, dtype=torch.uint8, device=device)
        return buffers[device]

    def replaced(name):
        original, mode, cells = getattr(functions, name), MODES[name], name == "lstm"

        @functools.wraps(original)
        def call(x, *args):
            packed = isinstance(args[2], (list, tuple))  # the weights come after the lengths and the state
            if not isinstance(x, run.fake) or not x.is_cuda or not torch.backends.cudnn.enabled:
                return original(x, *args)
            if x.dtype not in kinds:
                return original(x, *args)
            lengths, rest = (args[0], args[1:]) if packed else (None, args)
            hx, weights, bias, layers, dropout, train, both = rest[:7]
            first = bool(rest[7]) if len(rest) > 7 else False
            hx, cx = hx if cells else (hx, None)
            matrix = weights[0].shape[0] // GATES[name]
            projected = hx.shape[2] if hx.shape[2] != matrix else 0
            lengths = [] if lengths is None else lengths.tolist()
            per = (4 if bias else 2) + (1 if projected else 0)
            cast = torch.is_autocast_enabled()
            with torch.no_grad():
                buffer = buffer_of(weights)
            state = dropout_state(x.device, dropout, train)
            with torch.autocast("cuda", enabled=False):
                if cast:
                    weights, buffer = halves_of(weights, buffer)
                    x, hx, cx = halved(x), halved(hx), halved(cx)
                out, hy, cy, _, _ = torch._cudnn_rnn(
                    x, weights, per, buffer, hx, cx, mode, matrix, projected, layers, first,
                    float(dropout), train, both, lengths, state,
                )  # fmt: skip
            return (out, hy, cy) if cells else (out, hy)

        return call

    pad, pack, packed = functions._pad_packed_sequence, functions._pack_padded_sequence, packing(torch)

    @functools.wraps(pad)
    def padding(data, sizes, batch_first, value, total):
        if not isinstance(data, run.fake):
            return pad(data, sizes, batch_first, value, total)
        return padded(torch, data, sizes.tolist(), batch_first, value, total)

    @functools.wraps(pack)
    def packing_up(x, lengths, batch_first):
        fake = isinstance(x, run.fake) and isinstance(lengths, run.fake)
        return (packed if fake else pack)(x, lengths, batch_first)

    functions._pad_packed_sequence, functions._pack_padded_sequence = padding, packing_up
    modules.RNNBase.flatten_parameters = flattened
    for name in GATES:
        setattr(functions, name, replaced(name))
