"""What stands for a tensor between its two uses: where its bytes are, and how it looks at them."""

import weakref

CHANGED = (
    "one of the variables needed for gradient computation has been modified by an inplace operation: a "
    "saved tensor of shape %s is at version %d; expected version %d instead"
)


def expect_unchanged(witness, version, shape):
    """Raise as autograd does without hooks, where a saved tensor was changed."""
    if version >= 0 and witness._version != version:
        raise RuntimeError(CHANGED % (list(shape), witness._version, version))


class Kept(object):
    """A saved tensor that stays. What torch hands over may be what an op returned, which holds the op,
    which holds what is saved: only a detached one is gone with a graph that nobody goes through backward."""

    __slots__ = ("iteration", "tensor", "version")

    def __init__(self, iteration, tensor):
        self.iteration = iteration
        if type(tensor) in iteration.carrier.plain:
            with iteration.carrier.torch._C._DisableTorchDispatch():
                self.tensor = tensor.detach()
        else:
            self.tensor = tensor.detach()
        self.version = -1 if tensor.is_inference() else tensor._version


class Handle(object):
    """A tensor whose bytes are a value's."""

    __slots__ = ("iteration", "value", "dtype", "size", "stride", "offset", "witness", "version")

    def __init__(self, iteration, value, t):
        self.iteration, self.value, self.dtype = iteration, value, t.dtype
        self.size, self.stride, self.offset = t.size(), t.stride(), t.storage_offset()
        self.witness, self.version = None, -1

    def watch(self, torch, t):
        """Keep of a saved tensor what counts its changes, and not its bytes."""
        with torch._C._DisableTorchDispatch():
            self.witness = t.detach()
            with torch._C._ExcludeDispatchKeyGuard(
                torch._C.DispatchKeySet(torch._C.DispatchKey.ADInplaceOrView)
            ):
                self.witness.set_()
        self.version = t._version
        return self


class Value(object):
    """The bytes of one storage: here, on the host, or to be made again."""

    __slots__ = (
        "storage",
        "base",
        "bytes",
        "entry",
        "groups",
        "spoiled",
        "host",
        "done",
        "arrived",
        "stream",
        "sum",
        "unwritten",
        "__weakref__",
    )

    def __init__(self, storage):
        self.storage, self.base, self.bytes = weakref.ref(storage), None, storage.nbytes()
        # groups are those whose calls make it, where they were noted
        self.entry, self.groups, self.spoiled = None, None, False
        self.unwritten = False  # the op that made it left its bytes as they were, and two runs need not agree
        # stream is whose memory base is, where that may be read on another
        self.host = self.done = self.arrived = self.stream = self.sum = None

    def __del__(self):
        # fetched and never used: whoever takes the memory next has to wait for the copy
        if self.arrived is not None:
            self.stream.wait_event(self.arrived)
