"""What is known about an op before it runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .compat import schema_of, written_arguments
from .draws import chance_of

if TYPE_CHECKING:
    from .kinds import Op

# Ops that overwrite the whole tensor.
OVERWRITES = {"zero_", "fill_", "copy_", "normal_", "uniform_", "random_", "bernoulli_"}
# Ops whose results may be in another storage than before, by how their names begin.
MOVES = ("set_", "resize", "_resize", "sparse_resize", "swap")
# Ops that update running statistics, though their schemas do not say so.
NORMALISATIONS = {"native_batch_norm", "cudnn_batch_norm", "miopen_batch_norm"}


class Traits:
    """What an op's schema says, looked up once."""

    __slots__ = (
        "func",
        "name",
        "skip",
        "written",
        "overwrites",
        "chance",
        "collective",
        "running",
        "cast",
        "shapes",
        "looks",
        "own",
    )

    def __init__(self, func: Op, torch: Any) -> None:
        self.func = func  # keeps it alive, since it is looked up by its id
        schema = schema_of(func)
        space, _, name = schema.name.partition("::")
        self.name = name if space == "aten" else schema.name
        self.skip = space == "profiler"
        self.written = written_arguments(func)
        self.overwrites = name in OVERWRITES
        self.chance = chance_of(func, torch)
        self.collective = space == "c10d"
        if self.collective:
            self.written = [(0, schema.arguments[0].name)] if schema.arguments and name.endswith("_") else []
        self.running = name in NORMALISATIONS
        self.cast = name == "_to_copy"
        # takes a tensor's shape, but reads none of its bytes
        self.shapes = name.endswith("_like") or name.startswith("new_")
        returned = [r.alias_info for r in schema.returns]
        known = space == "aten" and bool(returned)
        # returns other views of its arguments, and changes nothing
        self.looks = known and not self.written and all(a is not None and not a.is_write for a in returned)
        # returns only what it changes, in the storage that it was in
        self.own = (
            known
            and not name.startswith(MOVES)
            and name.endswith("_")
            and all(a is not None and a.is_write for a in returned)
        )
