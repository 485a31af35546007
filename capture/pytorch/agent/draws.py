"""Whether a call of an op draws random numbers, or does something else that may happen only once.

torch tags the ops that may draw. Attention is one, because it can apply dropout to its weights, but most
calls do not: the call draws, not the op. If attention could never run again, no transformer could be trained
with recompute.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Iterator, Sequence

from .compat import schema_of, without_dispatch

if TYPE_CHECKING:
    from .kinds import Chance, Device, Op, Tensor

# Ops that draw nothing and give the same bits each time if their dropout probability is 0
# (aten/src/ATen/native/transformers in torch's sources).
ATTENTION = {
    "aten::_scaled_dot_product_" + kind
    for kind in ("flash_attention", "flash_attention_for_cpu", "efficient_attention", "cudnn_attention")
}

# Outputs that these ops write only if they apply dropout. Otherwise their backward pass does not use them,
# and on a GPU they are uninitialised memory (attention.cu, same folder).
UNWRITTEN = {"philox_seed", "philox_offset", "rng_state", "unused", "debug_attn_mask"}

# Ops that run only once. Some update running statistics among their arguments though their schemas do not say
# so: SyncBatchNorm uses them to gather the statistics of all ranks in the forward pass. The LSTM of oneDNN
# makes a workspace for its backward pass only while gradients are on, and does not write all of it.
ONCE = {"aten::batch_norm_" + name for name in ("gather_stats", "gather_stats_with_counts", "update_stats")}
ONCE.add("aten::mkldnn_rnn_layer")


def chance_of(func: Op, torch: Any) -> Chance:
    """None for an op that never draws; () for one that may draw at any call or may run only once; otherwise
    the argument that is 0 if the call does not draw: position, name, default."""
    if schema_of(func).name in ONCE:
        return ()
    if torch.Tag.nondeterministic_seeded not in func.tags:
        return None
    for k, a in enumerate(schema_of(func).arguments):
        if schema_of(func).name in ATTENTION and a.name == "dropout_p":
            return k, a.name, a.default_value if a.has_default_value() else None
    return ()


def draws(chance: Chance, args: Any, kwargs: Any) -> bool:
    """Whether a call with these arguments draws."""
    if not chance:
        return chance is not None
    at, name, default = chance
    return bool((args[at] if at < len(args) else kwargs.get(name, default)) != 0)


def unwritten(torch: Any, func: Op, out: Any) -> Sequence[Tensor]:
    """The outputs of an attention call without dropout that were never written, so they hold whatever was in
    memory."""
    if schema_of(func).name not in ATTENTION:
        return ()
    return [
        t for r, t in zip(schema_of(func).returns, out) if r.name in UNWRITTEN and isinstance(t, torch.Tensor)
    ]


@contextlib.contextmanager
def undrawn(torch: Any, device: Device) -> Iterator[None]:
    """Restore the state of the device's generator afterwards, in case the op counts the call."""
    with without_dispatch(torch):
        generator = (
            torch.cuda.default_generators[device.index] if device.type == "cuda" else torch.default_generator
        )
        state = generator.get_state()
    try:
        yield
    finally:
        with without_dispatch(torch):
            generator.set_state(state)
