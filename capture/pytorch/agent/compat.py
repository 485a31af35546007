"""The private names of torch that the agent needs. No other module of the agent uses any.

docs/torch-names.md lists the releases in which each was found; scripts/torchnames.py reads them from the
wheels. Names that only some releases have are looked up with getattr.
"""

from __future__ import annotations

import functools
import sys
from operator import attrgetter, methodcaller
from typing import TYPE_CHECKING, Any, Callable

if TYPE_CHECKING:
    from .kinds import Op, Tensor

# The address of a storage's C++ object, which identifies the storage while it lives.
address_of = attrgetter("_cdata")
# How often a tensor was changed in place.
version_of = attrgetter("_version")
# The schema of an op: what it takes, returns and writes.
schema_of = attrgetter("_schema")
# The number that autograd gave a node: one more than that of the node made before it.
sequence_of = methodcaller("_sequence_nr")


def storage_references(torch: Any) -> Callable[[int], int] | None:
    """The function that counts the references to a storage, mostly those of tensors, by the address of its
    C++ object. None in builds without it: older ones without CUDA."""
    return getattr(torch._C, "_storage_Use_Count", None)


def written_arguments(func: Op) -> list[tuple[int, str]]:
    """Position and name of the arguments that an op changes, according to its schema."""
    return [
        (k, a.name)
        for k, a in enumerate(schema_of(func).arguments)
        if a.alias_info is not None and a.alias_info.is_write
    ]


# -- optimizers ----------------------------------------------------------------------------------------------


def step_hooks() -> list[Any]:
    """The global hooks that run before the step of any optimizer."""
    from torch.optim import optimizer

    return list(getattr(optimizer, "_global_optimizer_pre_hooks", {}).values())


# -- dispatch ------------------------------------------------------------------------------------------------


def dispatch_mode(on_op: Callable[[Op, Any, Any], Any]) -> Any:
    """A mode that passes every op and its arguments to a function. An op on a wrapper such as DTensor first
    becomes ops on what it wraps."""
    return mode_class()(on_op)


@functools.lru_cache(1)
def mode_class() -> Any:
    """The one class for all modes. A class refers to itself, so only the garbage collector would free it and
    what its methods refer to."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Mode(TorchDispatchMode):  # type: ignore[misc]
        def __init__(self, on_op: Callable[[Op, Any, Any], Any]) -> None:
            super().__init__()
            self.on_op = on_op

        @classmethod
        def _should_skip_dynamo(cls) -> bool:  # or the first op would import the whole compiler
            return False

        def __torch_dispatch__(self, func: Op, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            for kind in types:
                if is_wrapper(kind):
                    return NotImplemented
            return self.on_op(func, args, kwargs if kwargs is not None else {})

    return Mode


def dispatch_modes(torch: Any) -> int:
    """How many modes this thread is in."""
    return int(torch._C._len_torch_dispatch_stack())


def is_innermost(torch: Any, mode: Any) -> bool:
    """Whether a mode can be left, because it is this thread's innermost one."""
    count = torch._C._len_torch_dispatch_stack()
    return count > 0 and torch._C._get_dispatch_stack_at(count - 1) is mode


def without_dispatch(torch: Any) -> Any:
    """A guard: while it lives, ops reach no mode and no subclass."""
    return torch._C._DisableTorchDispatch()


def without_functions(torch: Any) -> Any:
    """A guard: while it lives, calls do not reach subclasses of tensors."""
    return torch._C.DisableTorchFunctionSubclass()


def without_autocast(torch: Any) -> Any:
    """A guard: while it lives, ops run in the precision of their arguments."""
    return torch._C._DisableAutocast()


def without_versions(torch: Any) -> Any:
    """A guard: while it lives, changes in place are not counted."""
    keys = torch._C.DispatchKeySet(torch._C.DispatchKey.ADInplaceOrView)
    return torch._C._ExcludeDispatchKeyGuard(keys)


# -- autograd ------------------------------------------------------------------------------------------------


def graph_task(torch: Any) -> Callable[[], int]:
    """The function that returns the number of the backward pass on this thread, -1 for none."""
    task: Callable[[], int] = torch._C._current_graph_task_id
    return task


def autograd_node(torch: Any) -> Callable[[], Any]:
    """The function that returns the node that a backward pass is running on this thread."""
    node: Callable[[], Any] = torch._C._current_autograd_node
    return node


def next_sequence(torch: Any) -> Callable[[], int]:
    """The function that returns the number that autograd will give this thread's next node."""
    number: Callable[[], int] = torch.autograd._get_sequence_nr
    return number


def saved_hooks(torch: Any) -> Any:
    """The namespace of the functions for default hooks on saved tensors. DISABLE is one of them."""
    return torch._C._autograd


DISABLE = "_saved_tensors_hooks_disable"  # raises while hooks are pushed


def push_saved_hooks(torch: Any, pack: Callable[[Tensor], Any], unpack: Callable[[Any], Tensor]) -> None:
    torch._C._autograd._push_saved_tensors_default_hooks(pack, unpack)


def pop_saved_hooks(torch: Any) -> None:
    torch._C._autograd._pop_saved_tensors_default_hooks()


def top_saved_hooks(torch: Any) -> Callable[[bool], Any] | None:
    """A function that returns the innermost pair of hooks, or None if there is none. It is told whether to
    ignore that torch traces. Torch before 2.8 has no such function."""
    return getattr(saved_hooks(torch), "_top_saved_tensors_default_hooks", None)


def saved_hooks_disabled(torch: Any) -> str | None:
    """Why no hooks may be pushed, None if they may."""
    why: str | None = torch._C._autograd._saved_tensors_hooks_get_disabled_error_message()
    return why


def enable_saved_hooks(torch: Any) -> None:
    torch._C._autograd._saved_tensors_hooks_enable()


def profiler_enabled(torch: Any) -> bool:
    return bool(torch.autograd._profiler_enabled())


# -- tensors -------------------------------------------------------------------------------------------------


def is_wrapper(kind: type) -> bool:
    """Whether tensors of a type are made of other tensors."""
    return getattr(kind, "__tensor_flatten__", None) is not None


def local_shard(t: Tensor) -> Tensor:
    """The part of a distributed tensor on this rank; any other tensor itself."""
    return getattr(t, "_local_tensor", t)


def sparse_parts(t: Tensor) -> list[Tensor]:
    """The indices and the values of a sparse tensor, coalesced or not."""
    return [t._indices(), t._values()]


# -- memory of GPUs ------------------------------------------------------------------------------------------


def memory_stats(torch: Any) -> Callable[[int], Any]:
    """The function that returns the figures of a device's allocator, as nested dictionaries."""
    stats: Callable[[int], Any] = torch._C._cuda_memoryStats
    return stats


def records_history(torch: Any) -> bool:
    """Whether the allocator keeps a history."""
    return bool(torch._C._cuda_isHistoryEnabled())


def record_history(torch: Any) -> Callable[..., None]:
    """The function that turns the history on and off."""
    record: Callable[..., None] = torch.cuda.memory._record_memory_history
    return getattr(record, "original", record)  # the original, if the lookout replaced it


def with_cuda(torch: Any, begins: Callable[[], None]) -> None:
    """Call a function once, when the program first needs a GPU."""
    torch.cuda._lazy_call(begins)


def memory_snapshot(torch: Any) -> dict[str, Any]:
    """The allocator's history and all its segments."""
    snapshot: dict[str, Any] = torch.cuda.memory._snapshot()
    return snapshot


def is_rmm(torch: Any) -> bool:
    """Whether RMM serves GPU memory."""
    ours = getattr(sys.modules.get("rmm.allocators.torch"), "rmm_torch_allocator", None)
    rmm = getattr(ours, "_allocator", None)
    return rmm is not None and rmm is torch._C._cuda_getAllocator()


# -- torch.compile -------------------------------------------------------------------------------------------


def compiled_graphs() -> int:
    """How many graphs torch.compile has made so far."""
    counters: Any = getattr(sys.modules.get("torch._dynamo.utils"), "counters", None)
    return int(counters.get("stats", {}).get("unique_graphs", 0)) if counters else 0
