"""What a program holds of what autograd saved, in a real torch."""

import json
import time

import pytest

from agent.carry import Carrier
from agent.ops import Ops
from agent.storages import Addresses

torch = pytest.importorskip("torch")


def fail(error):
    raise error


def test_a_module_that_returns_has_held_its_inputs():
    """The call of a module of modules holds its input until it returns, though only the first of them
    reads it."""
    inner = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh())
    net = torch.nn.Sequential(torch.nn.Linear(4, 4), inner, torch.nn.Linear(4, 4))
    carrier = Carrier(torch, {})
    carrier.begin()
    window = Ops(torch, time.perf_counter_ns, time.perf_counter_ns(), Addresses(), [], fail)
    carrier.watch = window
    window.begin()
    try:
        net(torch.ones(2, 4)).sum().backward()
    finally:
        window.end()
        carrier.remove()
    rows = [json.loads(line) for line in "".join(window.pieces({"epoch_ns": 0})).splitlines()[1:]]
    ops = [row for row in rows if row["k"] == "op"]
    made = [op["w"][0] for op in ops if op["name"] == "aten::addmm"]  # by the three Linears
    tanh = next(k for k, op in enumerate(ops) if op["name"] == "aten::tanh")
    last = [k for k, op in enumerate(ops) if op["name"] == "aten::addmm"][-1]
    held = [(k, op["r"]) for k, op in enumerate(ops) if op["name"] == "gmemtop::held"]
    assert [made[0]] in [read for k, read in held if tanh < k < last], ops
    # the batch, which no op made
    assert held[-1][0] > last and len(held[-1][1]) == 1 and held[-1][1][0] not in made, ops
