"""Values that ranks send one another (values.py)."""

import functools

from .training import tensors_in
from .values import SMALL_BYTES


def follow_ranks(run):
    """Collectives carry small tensors between ranks: the result of known ones is known."""
    torch, known = run.torch, run.known
    ranks = torch.distributed.distributed_c10d

    def carry(name, into, of):
        original = getattr(ranks, name)

        @functools.wraps(original)
        def call(*args, **kwargs):
            inputs = list(tensors_in(torch, *of(args, kwargs)))
            sent = all(known.has(t) and t.untyped_storage().nbytes() <= SMALL_BYTES for t in inputs)
            out = original(*args, **kwargs)
            for t in tensors_in(torch, *into(args, kwargs)):
                if t.device.type == "cuda":
                    known.add(t) if sent else known.forget(t)
            return out

        setattr(ranks, name, call)
        if hasattr(torch.distributed, name):
            setattr(torch.distributed, name, call)

    def first(args, kwargs):
        return (args[:1], {} if args else dict(list(kwargs.items())[:1]))

    def second(args, kwargs):
        return (args[1:2], {k: x for k, x in kwargs.items() if k in ("tensor", "input_tensor")})

    carry("all_gather", first, second)
    carry("all_gather_into_tensor", first, second)
    broadcast = ranks.broadcast

    @functools.wraps(broadcast)
    def broadcasting(tensor, src=None, *args, **kwargs):
        out = broadcast(tensor, src, *args, **kwargs)
        if tensor.device.type == "cuda" and src != ranks.get_rank():
            known.add(tensor)  # an assumption: a rank sends what it knows
        return out

    ranks.broadcast = torch.distributed.broadcast = broadcasting
