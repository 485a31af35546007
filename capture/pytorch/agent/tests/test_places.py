"""Tests plans of programs whose steps run different ops."""

import pytest

from agent.carry import Carrier
from agent.places import NOWHERE, Counts, Places

PLACES = {
    "modules": ["a", "b"],
    "saves": [[0, 0], [0, 0], [1, 0], [0, 1]],
    "loads": [2, 1, 0, 3],
    "ops": {"aten::tanh": [[0, 0, 0, 0], [1, 1, 0, 0], [2, 0, 1, 0]]},
}


def test_places_do_not_move_with_what_runs_elsewhere():
    places, a, b = Places(None, {"places": PLACES}), ["a"], ["b"]
    for saves, want in (
        ([a, a, b], [0, 1, 2]),
        ([b], [2]),  # a is left out
        ([a, b, b, a, a], [0, 2, NOWHERE, 1, NOWHERE]),  # b and a run longer
    ):
        counts, got = Counts(), []
        for module in saves:
            places.running = module
            got.append(places.save(counts))
        assert got == want
        assert counts.placed == sum(n != NOWHERE for n in want)


def test_a_backward_pass_begins_with_the_first_of_its_loads():
    places, counts = Places(None, {"places": PLACES}), Counts()
    places.running = ["a"]
    assert (places.op(counts, "aten::tanh", True), places.save(counts), places.save(counts)) == (0, 0, 1)
    assert [places.load(counts, n) for n in (1, 0, NOWHERE)] == [1, 2, NOWHERE]
    assert counts.passes == 1
    assert (places.op(counts, "aten::tanh", True), places.save(counts)) == (2, 3)
    assert places.load(counts, 3) == 3
    assert counts.passes == 2
    assert places.save(counts) == NOWHERE


def test_only_saves_of_the_planned_step_tell_when_something_leaves():
    places, counts = Places(None, {"places": PLACES, "saves": 3}), Counts()
    places.running, due = ["a"], []
    for _ in range(2):
        due.append(places.due(places.save(counts)))
    counts.passes = 1
    assert due == [0, 1]
    assert places.due(places.save(counts)) == 0  # it is the fourth, which only another step has


def test_what_a_step_keeps_is_the_highest_of_its_passes():
    counts = Counts()
    counts.stays, counts.saved = {1: 10, 2: 5}, {1: 10, 2: 5, 3: 100}
    counts.close()
    counts.stays, counts.saved = {1: 20}, {1: 20}
    counts.close()
    assert counts.most == [20, 115]


def test_a_name_is_its_modules_and_no_later_ones_with_its_id():
    class Module:
        def __init__(self, name):
            self.name = name

        def named_modules(self):
            yield self.name, self

    places, first, second = Places(None, {"places": PLACES}), Module("a"), Module("b")
    places.enter(first)
    places.names[id(second)] = places.names[id(first)]
    places.enter(second)
    assert places.running == ["a", "b"]
    places.leave()
    places.leave()
    places.leave()  # entered before the plan began
    assert places.running == []


def test_tensors_leave_whichever_modules_a_step_leaves_out():
    torch = pytest.importorskip("torch", reason="needs torch")

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = torch.nn.Tanh(), torch.nn.Sigmoid()
            self.weight = torch.nn.Parameter(torch.full((64,), 0.3))

        def forward(self, x, first, times):
            y = x * self.weight
            if first:
                y = self.a(y)
            for _ in range(times):
                y = self.b(y)
            return y.sum()

    def learnt(plan, steps):
        net, carrier, moved = Net(), Carrier(torch, plan), []
        carrier.begin()
        try:
            for step in steps:
                net(torch.linspace(-1, 1, 64), *step).backward()
                moved.append(carrier.next())
        finally:
            carrier.remove()
        return net.weight.grad, moved, carrier

    # in the planned step Net saves x, then each module its result
    entries = [
        {"save": n, "bytes": 256, "how": "swap", "slot": 256 * k, "release": n, "fetch": 0, "group": 0}
        for k, n in enumerate((1, 2))
    ]
    plan = {
        "device": "cpu",
        "slab": 512,
        "saves": 3,
        "values": entries,
        "groups": [],
        "sizes": [1 << 20, 1 << 20],
        "places": {
            "modules": ["Net", "a", "b"],
            "saves": [[0, 0], [1, 0], [2, 0]],
            "loads": [2, 1, 0],
            "ops": {},
        },
    }
    steps = [(True, 1), (False, 1), (True, 3), (False, 1), (False, 1), (False, 1)]
    want = learnt({}, steps)[0]
    got, moved, carrier = learnt(plan, steps)
    assert torch.equal(got, want)
    assert [m[0] for m in moved] == [512, 256, 512, 256, 256, 256]
    assert all(m[3] == m[5] == 0 for m in moved)
    assert carrier.why == ""
    assert carrier.sizes.steps == 0

    plan["sizes"] = [256, 3 * 256]  # the third step keeps two more results
    carrier = learnt(plan, steps)[2]
    assert (carrier.sizes.news, carrier.sizes.steps) == (True, 1)
    assert carrier.sizes.known == [3 * 256, 5 * 256]

    plan["places"] = dict(plan["places"], modules=["Other", "c", "d"])  # the model has changed
    got, moved, carrier = learnt(plan, steps)
    assert torch.equal(got, want)
    assert getattr(carrier.why, "code", "") == "other_places", repr(carrier.why)
