"""What to believe of numbers that nothing computed, where they decide the size of something.

Assuming that every number is 1 would make them all equal: one value is unique, every token goes to one
expert.
So we believe what a training usually sees instead:

- Indices by size (topk, sort, argmax, multinomial) are spread evenly over the range: consecutive rows get
  consecutive ones, beginning in the middle. All experts of a mixture get tokens, and a language model
  generates tokens that are not special.
- Small random numbers are drawn, on the host.
- A mask is true everywhere, so that nonzero finds each place, and all numbers are different, except that
  there are two truth values. That gives the largest possible result.

Rejected: a random choice of indices. The same script must get the same answer, and spreading is what routers
are trained for.
"""

INDICES = {  # ops that return indices, and which of their results these are
    "argmax": 0,
    "argmin": 0,
    "multinomial": 0,
    "max.dim": 1,
    "min.dim": 1,
    "median.dim": 1,
    "topk": 1,
    "sort": 1,
    "sort.stable": 1,
}


def choices(schema, args, kwargs):
    """The dimension that an op returns indices of, None for all, and how many different ones there can be."""
    given = {a.name: a.default_value for a in schema.arguments if a.has_default_value()}
    given.update(zip((a.name for a in schema.arguments), args))
    given.update(kwargs)
    t, dim = given["self"], given.get("dim", -1)
    return dim, t.numel() if dim is None or t.dim() == 0 else t.shape[dim]


def spread(torch, schema, args, kwargs, out):
    """Believable indices, on the host, for those that an op returned, of which only the shape is known."""
    dim, n = choices(schema, args, kwargs)
    shape, count = list(out.shape), 1
    for size in shape:
        count *= size
    indices = (torch.arange(count) + n // 2) % max(n, 1)
    if dim is None or not shape or schema.name.rpartition("::")[2] not in ("topk", "sort", "multinomial"):
        return indices.view(shape)
    shape.append(shape.pop(dim))  # so that one row has different ones
    return indices.view(shape).movedim(-1, dim)


class Few:
    """How many different values a tensor of unknown values may have, where that is less than its elements."""

    def __init__(self):
        from torch.multiprocessing.reductions import StorageWeakRef

        self.by, self.weak = {}, StorageWeakRef

    def note(self, t, n):
        if len(self.by) > 4096:
            self.by = {key: held for key, held in self.by.items() if not held[0].expired()}
        storage = t.untyped_storage()
        self.by[storage._cdata] = (self.weak(storage), n)

    def copied(self, to, of):
        """to has the values of `of`, maybe in another type."""
        n = self.values(of)
        if n < of.numel() and n < of.untyped_storage().nbytes():
            self.note(to, n)
        else:
            self.by.pop(to.untyped_storage()._cdata, None)

    def values(self, t):
        """The most different values that t may have."""
        weak, n = self.by.get(t.untyped_storage()._cdata, (None, None))
        if weak is None or weak.expired():
            n = 2 if t.element_size() == 1 and "bool" in str(t.dtype) else t.numel()
        return min(n, t.numel())
