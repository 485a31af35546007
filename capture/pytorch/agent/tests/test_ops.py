"""Tests what a window of ops records, with real torch."""

import json
import time

import pytest

from agent.compat import without_dispatch
from agent.ops import Ops
from agent.storages import Addresses

torch = pytest.importorskip("torch")


def fail(error):
    raise error


def window():
    return Ops(torch, time.perf_counter_ns, time.perf_counter_ns(), Addresses(), [], fail)


def rows_of(ops):
    return [json.loads(line) for line in "".join(ops.pieces({"epoch_ns": 0})).splitlines()[1:]]


def test_what_an_op_reads_is_seen_whatever_kind_of_tensor_holds_it():
    """Sparse tensors have two storages, subclasses are tensors too, and a storage may grow unseen."""

    class Sub(torch.Tensor):
        pass

    sparse = torch.eye(3).to_sparse()
    sub, grown, alone = torch.ones(3).as_subclass(Sub), torch.ones(3), torch.ones(3)
    ops = window()
    ops.begin()
    try:
        _ = alone * alone
        _ = sparse * 2.0
        _ = sub + 1.0
        _ = grown + 1.0
        with without_dispatch(torch):  # as code in C++ may
            grown.resize_(18)
        _ = grown + 1.0
    finally:
        ops.end()
    rows = rows_of(ops)
    reads = {}
    for row in rows:
        if row["k"] == "op" and row["r"]:
            reads.setdefault(row["name"], []).append(row["r"])
    sizes = {}
    for row in rows:
        if row["k"] == "alloc":
            sizes.setdefault(row["id"], []).append(row["size"])
    assert len(reads["aten::mul"][0]) == 1, "one storage, which is read twice"
    first, second, third = (read[0] for read in reads["aten::add"])
    assert sizes[first] == [12] and first != second
    assert second == third and sizes[second][0] == 12 and sizes[second][-1] == 72
