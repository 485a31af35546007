"""Tests which saved tensors the program itself holds, with real torch."""

import json
import time

import pytest

from agent.carry import Carrier
from agent.ops import Ops
from agent.storages import Addresses

torch = pytest.importorskip("torch")


def fail(error):
    raise error


def described(train):
    """The rows of a window on a training, with the tensors that autograd saves."""
    carrier = Carrier(torch, {})
    carrier.begin()
    window = Ops(torch, time.perf_counter_ns, time.perf_counter_ns(), Addresses(), [], fail)
    carrier.watch = window
    window.begin()
    try:
        train()
    finally:
        window.end()
        carrier.remove()
    return [json.loads(line) for line in "".join(window.pieces({"epoch_ns": 0})).splitlines()[1:]]


def test_a_module_that_returns_has_held_its_inputs():
    """The call of a module of modules holds its input until it returns, though only the first of them
    reads it."""
    inner = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh())
    net = torch.nn.Sequential(torch.nn.Linear(4, 4), inner, torch.nn.Linear(4, 4))
    rows = described(lambda: net(torch.ones(2, 4)).sum().backward())
    ops = [row for row in rows if row["k"] == "op"]
    made = [op["w"][0] for op in ops if op["name"] == "aten::addmm"]  # by the three Linears
    tanh = next(k for k, op in enumerate(ops) if op["name"] == "aten::tanh")
    last = [k for k, op in enumerate(ops) if op["name"] == "aten::addmm"][-1]
    held = [(k, op["r"]) for k, op in enumerate(ops) if op["name"] == "gmemtop::held"]
    assert [made[0]] in [read for k, read in held if tanh < k < last], ops
    batch = next(op["w"][0] for op in ops if op["name"] == "aten::ones")
    assert held[-1][0] > last and batch in held[-1][1], ops


def layers(n):
    return [torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh()) for _ in range(n)]


def held_until(rows):
    """For each tanh, in order, the op before which the program drops its result, None for never."""
    ops = [row for row in rows if row["k"] == "op"]
    made = [op["w"][0] for op in ops if op["name"] == "aten::tanh"]
    out = []
    for number in made:
        last = [k for k, op in enumerate(ops) if op["name"] == "gmemtop::held" and number in op["r"]]
        real = (
            [op["name"] for op in ops[last[-1] :] if not op["name"].startswith("gmemtop::")] if last else []
        )
        out.append(real[0] if real else None)
    return out


counts = pytest.mark.skipif(
    not hasattr(torch._C, "_storage_Use_Count"), reason="this torch counts no references to a storage"
)


@counts
def test_what_has_gone_with_its_graph_is_not_named_again():
    """A program that leaves a result unused, such as BERT's pooled output, drops that part of the graph."""
    first, second, third = layers(3)

    def unused(x):
        a = first(x)
        second(a)
        return third(a).sum()

    there = set()
    for row in described(lambda: unused(torch.ones(2, 4)).backward()):
        if row["k"] == "alloc":
            there.add(row["id"])
        elif row["k"] == "free":
            there.remove(row["id"])
        else:
            assert there.issuperset(row["r"] + row["w"] + row["m"]), row


@counts
def test_a_tensor_with_a_name_is_held_until_its_function_returns():
    first, second, third = layers(3)

    def named(x):
        a = first(x)
        b = second(a)
        return third(b).square().sum()

    def unnamed(x):
        return third(second(first(x))).square().sum()

    # backward begins with the gradient of the loss
    assert held_until(described(lambda: named(torch.ones(2, 4)).backward()))[:2] == ["aten::ones_like"] * 2
    early = held_until(described(lambda: unnamed(torch.ones(2, 4)).backward()))
    assert len(early) == 3 and None not in early and "aten::ones_like" not in early[:2], early


@counts
def test_a_tensor_that_stands_in_a_variable_is_held_where_backward_needs_it():
    first, second = layers(2)
    names = []

    def step():
        names.append(first(torch.ones(2, 4)))
        second(names[0]).square().sum().backward()

    rows = described(step)
    ops = [row for row in rows if row["k"] == "op"]
    result = next(op["w"][0] for op in ops if op["name"] == "aten::tanh")
    load = next(k for k, op in enumerate(ops) if op["name"] == "gmemtop::load" and result in op["r"])
    assert ops[load + 1]["name"] == "gmemtop::held" and ops[load + 1]["r"] == [result], ops


@counts
def test_a_view_of_a_tensor_holds_it_too():
    first, second = layers(2)
    names = []

    def forward():
        x = first(torch.ones(2, 4))
        names.append(x[0])
        y = second(x).square().sum()
        del x
        return y

    rows = described(lambda: forward().backward())
    ops = [row for row in rows if row["k"] == "op"]
    result = next(op["w"][0] for op in ops if op["name"] == "aten::tanh")
    load = next(k for k, op in enumerate(ops) if op["name"] == "gmemtop::load" and result in op["r"])
    assert ops[load + 1]["name"] == "gmemtop::held" and ops[load + 1]["r"] == [result], ops


@counts
def test_nothing_is_said_of_what_a_plan_stands_in_for():
    """If a handle replaces a saved tensor, references say nothing about the program."""
    window = Ops(torch, time.perf_counter_ns, time.perf_counter_ns(), Addresses(), [], fail)
    window.begin()
    try:
        x = torch.nn.Linear(4, 4)(torch.ones(2, 4))
        window.saved_one(x, True)
        window.saved_one(x, False)
        del x
        torch.ones(1)
    finally:
        window.end()
    assert "gmemtop::held" not in "".join(window.pieces({"epoch_ns": 0}))


@counts
def test_of_many_saved_tensors_few_are_looked_at_before_each_op():
    """Looking at all of them would take time that grows with the square of a step's length. What a function
    drops as it returns, what is large and what is new is still seen at once."""
    from agent.keeps import ALL, NEWEST, SOME, Keeps
    from agent.storages import Storage

    keeps, held, looks = Keeps(torch), [], 0
    count = keeps.references

    def looked(address):
        nonlocal looks
        looks += 1
        return count(address)

    keeps.references = looked
    # one in a hundred is large; the test holds each until it clears `held`, and no hook does
    for number in range(1000):
        storage = torch.empty(100000 if number % 100 == 50 else 1).untyped_storage()
        there = Storage(storage)
        there.size = storage.nbytes()
        held.append((storage, torch.empty(0).set_(storage), torch.empty(0).set_(storage)))
        keeps.save(number, there, True)
        assert keeps.let_go() == []
    assert looks < 1000 * (NEWEST + SOME + ALL), looks
    del storage
    held[50] = held[950] = held[990] = None  # two large ones and a new one
    assert [n for n in keeps.let_go() if n % 100 in (50, 90)] == [50, 950, 990]
    held[:900] = [None] * 900
    assert len(keeps.let_go()) == 899
    held[900] = None  # backward looks at all
    assert keeps.let_go(begins=True) == [900]
    assert not keeps.need(900) and keeps.need(901)


@counts
def test_a_storage_that_is_needed_and_saved_again_is_dropped_once():
    """A step with two backward passes saves the same tensor for each of them."""
    from agent.keeps import ALL, Keeps
    from agent.storages import Storage

    keeps, held = Keeps(torch), []
    for number in range(2 * ALL):  # not all of them are looked at each time
        storage = torch.empty(1).untyped_storage()
        there = Storage(storage)
        there.size = storage.nbytes()
        held.append((storage, torch.empty(0).set_(storage), torch.empty(0).set_(storage)))
        keeps.save(number, there, True)
    again = number
    assert keeps.let_go() == [] and keeps.need(again)
    keeps.save(again, there, True)
    del storage
    held.pop()
    assert keeps.let_go() == [again]
    assert keeps.let_go() == []


def test_a_view_has_no_row_and_an_op_in_place_makes_nothing():
    """Their schemas say so, so nothing is looked for in what they return."""
    weight = torch.ones(4, 4, requires_grad=True)

    def train():
        y = (weight * 2).view(16)[2:].mul_(3)
        y.sum().backward()

    rows = [row for row in described(train) if row["k"] == "op" and not row["name"].startswith("gmemtop::")]
    names = [row["name"] for row in rows]
    assert not {"aten::view", "aten::slice"}.intersection(names), names
    changed = rows[names.index("aten::mul_")]
    assert changed["w"] == [] and changed["m"] == rows[names.index("aten::mul")]["w"], changed
