"""The private names of torch that the agent needs, and nowhere else in it.

docs/torch-names.md says in which releases each was seen; scripts/torchnames.py reads it from their wheels. A
name that only some releases have is asked for with getattr.
"""

from __future__ import annotations

import functools
import sys
from operator import attrgetter, methodcaller
from typing import TYPE_CHECKING, Any, Callable

if TYPE_CHECKING:
    from .kinds import Op, Tensor

# The C++ object of a storage by its address: what a storage is known by as long as it lives.
address_of = attrgetter("_cdata")
# How often a tensor was changed in place.
version_of = attrgetter("_version")
# What an op takes, returns and writes.
schema_of = attrgetter("_schema")
# The number that autograd gave a node: one more than that of the node made before it.
sequence_of = methodcaller("_sequence_nr")


def storage_references(torch: Any) -> Callable[[int], int] | None:
    """The function that counts the references to a storage by the address of its C++ object, those of tensors
    above all; None in builds without it, which are older ones without CUDA."""
    return getattr(torch._C, "_storage_Use_Count", None)


def written_arguments(func: Op) -> list[tuple[int, str]]:
    """Position and name of the arguments that an op changes, as its schema says."""
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
    """A mode that hands every op to a function, with its arguments. A wrapper such as DTensor first becomes
    ops on what it wraps."""
    return mode_class()(on_op)


@functools.lru_cache(1)
def mode_class() -> Any:
    """One class for all modes: a class refers to itself, so only the garbage collector frees it, and with it
    what its methods enclose."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Mode(TorchDispatchMode):  # type: ignore[misc]
        def __init__(self, on_op: Callable[[Op, Any, Any], Any]) -> None:
            super().__init__()
            self.on_op = on_op

        @classmethod
        def _should_skip_dynamo(cls) -> bool:  # or the first op would import all of the compiler
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
    """Whether a mode can be left: it is this thread's innermost one."""
    count = torch._C._len_torch_dispatch_stack()
    return count > 0 and torch._C._get_dispatch_stack_at(count - 1) is mode


def without_dispatch(torch: Any) -> Any:
    """Ops reach no mode and no subclass meanwhile."""
    return torch._C._DisableTorchDispatch()


def without_functions(torch: Any) -> Any:
    """Subclasses of tensors do not hear of calls meanwhile."""
    return torch._C.DisableTorchFunctionSubclass()


def without_autocast(torch: Any) -> Any:
    """Ops run in the precision of their arguments meanwhile."""
    return torch._C._DisableAutocast()


def without_versions(torch: Any) -> Any:
    """Changes in place are not counted meanwhile."""
    keys = torch._C.DispatchKeySet(torch._C.DispatchKey.ADInplaceOrView)
    return torch._C._ExcludeDispatchKeyGuard(keys)


# -- autograd ------------------------------------------------------------------------------------------------


def graph_task(torch: Any) -> Callable[[], int]:
    """The function that says which backward pass runs on this thread, -1 for none."""
    task: Callable[[], int] = torch._C._current_graph_task_id
    return task


def autograd_node(torch: Any) -> Callable[[], Any]:
    """The function that says which node of a backward pass runs on this thread."""
    node: Callable[[], Any] = torch._C._current_autograd_node
    return node


def next_sequence(torch: Any) -> Callable[[], int]:
    """The function that says which number autograd gives the next node of this thread."""
    number: Callable[[], int] = torch.autograd._get_sequence_nr
    return number


def saved_hooks(torch: Any) -> Any:
    """What holds the functions around default hooks on saved tensors. DISABLE is one of them."""
    return torch._C._autograd


DISABLE = "_saved_tensors_hooks_disable"  # raises while hooks are pushed


def push_saved_hooks(torch: Any, pack: Callable[[Tensor], Any], unpack: Callable[[Any], Tensor]) -> None:
    torch._C._autograd._push_saved_tensors_default_hooks(pack, unpack)


def pop_saved_hooks(torch: Any) -> None:
    torch._C._autograd._pop_saved_tensors_default_hooks()


def saved_hooks_disabled(torch: Any) -> str | None:
    """Why no hooks may be pushed, None where they may."""
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
    """What a distributed tensor holds on this rank; any other tensor itself."""
    return getattr(t, "_local_tensor", t)


def sparse_parts(t: Tensor) -> list[Tensor]:
    """The indices and the values of a sparse tensor, coalesced or not."""
    return [t._indices(), t._values()]


# -- memory of GPUs ------------------------------------------------------------------------------------------


def memory_stats(torch: Any) -> Callable[[int], Any]:
    """The function that returns the figures of a device's allocator, nested."""
    stats: Callable[[int], Any] = torch._C._cuda_memoryStats
    return stats


def records_history(torch: Any) -> bool:
    """Whether the allocator keeps a history."""
    return bool(torch._C._cuda_isHistoryEnabled())


def record_history(torch: Any) -> Callable[..., None]:
    """The function that turns the history on and off."""
    record: Callable[..., None] = torch.cuda.memory._record_memory_history
    return getattr(record, "original", record)  # below what the lookout put in its place


def with_cuda(torch: Any, begins: Callable[[], None]) -> None:
    """Have a function called once when the program first needs a GPU."""
    torch.cuda._lazy_call(begins)


def memory_snapshot(torch: Any) -> dict[str, Any]:
    """The history and all segments."""
    snapshot: dict[str, Any] = torch.cuda.memory._snapshot()
    return snapshot


def is_rmm(torch: Any) -> bool:
    """Whether RMM serves the memory of GPUs."""
    ours = getattr(sys.modules.get("rmm.allocators.torch"), "rmm_torch_allocator", None)
    rmm = getattr(ours, "_allocator", None)
    return rmm is not None and rmm is torch._C._cuda_getAllocator()


# -- torch.compile -------------------------------------------------------------------------------------------


def compiled_graphs() -> int:
    """How many graphs torch.compile has made so far."""
    counters: Any = getattr(sys.modules.get("torch._dynamo.utils"), "counters", None)
    return int(counters.get("stats", {}).get("unique_graphs", 0)) if counters else 0
