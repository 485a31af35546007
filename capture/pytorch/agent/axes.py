"""Where this process stands in a training that is split over ranks, according to the library that splits it.

Nothing is imported here, and none of these calls talks to other ranks. If a library does not know an axis
yet, it raises an error, and the axis is left out.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Callable

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .kinds import Tensor

MAX_AXES = 8
LOOKED_AT = 8  # how many parameters to search for a mesh

# the usual names of a mesh's dimensions, and what people call them
MESH_NAMES = {
    "dp": "data",
    "dp_replicate": "data",
    "data_parallel": "data",
    "tp": "tensor",
    "tensor_parallel": "tensor",
    "pp": "pipeline",
    "ep": "expert",
    "cp": "context",
}


def axes(parameters: Iterable[Tensor]) -> list[dict[str, Any]]:
    """The position of this process along each axis: the axis's name, the position from 0, and the size."""
    for found in (_megatron, _deepspeed, lambda: _mesh(parameters)):
        try:
            there = found()
        except Exception:  # a library of another kind
            continue
        if there:
            return [{"name": n, "at": at, "of": of} for n, at, of in there[:MAX_AXES]]
    return []


def _known(
    name: str, at: Callable[[], Any] | None, of: Callable[[], Any] | None
) -> list[tuple[str, int, int]]:
    """A list with the axis, empty if the library does not know it."""
    try:
        return [(name, int(at()), int(of()))] if at is not None and of is not None else []
    except Exception:  # its group is not there
        return []


def _megatron() -> list[tuple[str, int, int]]:
    state = sys.modules.get("megatron.core.parallel_state")
    if state is None or not state.model_parallel_is_initialized():
        return []
    there = []
    for name, what in (
        ("pipeline", "pipeline_model_parallel"),
        ("expert", "expert_model_parallel"),
        ("data", "data_parallel"),
        ("context", "context_parallel"),
        ("tensor", "tensor_model_parallel"),
    ):
        rank, size = "get_%s_rank" % what, "get_%s_world_size" % what
        there += _known(name, getattr(state, rank, None), getattr(state, size, None))
    return there


def _deepspeed() -> list[tuple[str, int, int]]:
    groups = sys.modules.get("deepspeed.utils.groups")
    if groups is None:
        return []
    mpu = getattr(groups, "mpu", None)
    there: list[tuple[str, int, int]] = []
    for name, whats in (
        ("pipeline", ("pipeline_model_parallel", "pipe_parallel")),
        ("data", ("data_parallel",)),
        ("tensor", ("tensor_model_parallel", "model_parallel")),
    ):
        for of in (mpu, groups if mpu is None else None):
            for what in whats:
                if of is not None and not any(name == n for n, _, _ in there):
                    rank, size = "get_%s_rank" % what, "get_%s_world_size" % what
                    there += _known(name, getattr(of, rank, None), getattr(of, size, None))
    dist = sys.modules.get("torch.distributed")
    for ranks in list(getattr(groups, "_EXPERT_PARALLEL_GROUP_RANKS", {}).values())[:1]:
        if dist is not None and len(ranks) > 1:
            there.append(("expert", list(ranks).index(dist.get_rank()), len(ranks)))
    return there


def _mesh(parameters: Iterable[Tensor]) -> list[tuple[str, int, int]]:
    """The axes of the DeviceMesh that parameters are sharded over, or of the larger mesh it is part of."""
    for _, p in zip(range(LOOKED_AT), parameters):
        mesh = getattr(p, "device_mesh", None)
        if mesh is None:
            continue
        root = getattr(mesh, "_get_root_mesh", lambda of=mesh: of)()
        names, places = root.mesh_dim_names, root.get_coordinate()
        if places is None:
            return []
        there: list[tuple[str, int, int]] = []
        for i, (place, size) in enumerate(zip(places, root.mesh.shape)):
            name = names[i] if names else "dim %d" % i
            usual = MESH_NAMES.get(name, name)
            if any(usual == n for n, _, _ in there):
                usual = name
            there.append((usual, int(place), int(size)))
        return there
    return []
