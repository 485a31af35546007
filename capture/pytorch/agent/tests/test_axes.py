"""Tests where a process stands according to its libraries. The modules here are fake, with the names that
Megatron-Core and DeepSpeed use."""

import sys
from types import SimpleNamespace

import pytest

from agent.axes import axes


def said(parameters=()):
    return [(a["name"], a["at"], a["of"]) for a in axes(iter(parameters))]


def places(**named):
    """A module with functions that return positions and sizes."""
    module = {}
    for what, (at, of) in named.items():
        module["get_%s_rank" % what] = lambda at=at: at
        module["get_%s_world_size" % what] = lambda of=of: of
    return module


@pytest.fixture(autouse=True)
def no_libraries(monkeypatch):
    for name in ("megatron.core.parallel_state", "deepspeed.utils.groups"):
        monkeypatch.delitem(sys.modules, name, raising=False)


def test_a_training_that_is_not_split_has_no_axes():
    assert said([SimpleNamespace()]) == []


def test_megatron_tells_its_groups(monkeypatch):
    known = places(pipeline_model_parallel=(1, 4), tensor_model_parallel=(2, 8), data_parallel=(0, 2))

    def unknown():
        raise AssertionError("context parallel group is not initialized")

    state = SimpleNamespace(
        model_parallel_is_initialized=lambda: True,
        get_context_parallel_rank=unknown,
        get_context_parallel_world_size=unknown,
        **known,
    )
    monkeypatch.setitem(sys.modules, "megatron.core.parallel_state", state)
    assert said() == [("pipeline", 1, 4), ("data", 0, 2), ("tensor", 2, 8)]
    state.model_parallel_is_initialized = lambda: False
    assert said() == []


def test_deepspeed_tells_those_of_its_grid(monkeypatch):
    mpu = SimpleNamespace(**places(pipe_parallel=(1, 2), data_parallel=(3, 4), model_parallel=(0, 1)))
    groups = SimpleNamespace(mpu=mpu, _EXPERT_PARALLEL_GROUP_RANKS={"ep_size_2": range(4, 6)})
    monkeypatch.setitem(sys.modules, "deepspeed.utils.groups", groups)
    monkeypatch.setitem(sys.modules, "torch.distributed", SimpleNamespace(get_rank=lambda: 5))
    assert said() == [("pipeline", 1, 2), ("data", 3, 4), ("tensor", 0, 1), ("expert", 1, 2)]


def mesh(names, at, shape, root=None):
    m = SimpleNamespace(mesh_dim_names=names, mesh=SimpleNamespace(shape=shape), get_coordinate=lambda: at)
    m._get_root_mesh = lambda: root or m
    return m


def test_a_parameter_tells_its_mesh_and_the_one_that_this_is_part_of():
    whole = mesh(("pp", "dp_replicate", "dp_shard", "tp"), [1, 0, 2, 3], (2, 2, 4, 4))
    part = mesh(("dp_shard", "tp"), [2, 3], (4, 4), whole)
    parameters = [SimpleNamespace(), SimpleNamespace(device_mesh=part)]
    assert said(parameters) == [("pipeline", 1, 2), ("data", 0, 2), ("dp_shard", 2, 4), ("tensor", 3, 4)]
    nameless = SimpleNamespace(device_mesh=mesh(None, [1], (2,)))
    assert said([nameless]) == [("dim 0", 1, 2)]


def test_a_library_of_another_kind_tells_nothing(monkeypatch):
    monkeypatch.setitem(sys.modules, "megatron.core.parallel_state", SimpleNamespace())
    monkeypatch.setitem(sys.modules, "deepspeed.utils.groups", SimpleNamespace(mpu=SimpleNamespace()))
    outside = SimpleNamespace(device_mesh=mesh(("dp",), None, (2,)))
    assert said([outside]) == []
