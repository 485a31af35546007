"""Tests plans of programs whose steps run different ops."""

import pytest

from agent.carry import Carrier
from agent.modules import MODULE_NAMES, Names
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

    places, first, second = Places(None, {"places": PLACES}), Module("u"), Module("v")
    places.enter(first)
    MODULE_NAMES.known[id(second)] = MODULE_NAMES.known[id(first)]
    places.enter(second)
    assert places.running == ["u", "v"]
    places.leave()
    places.leave()
    places.leave()  # entered before the plan began
    assert places.running == []


def test_tensors_leave_whichever_modules_a_step_leaves_out(monkeypatch):
    monkeypatch.setattr("agent.places.MODULE_NAMES", Names())  # without those of other tests
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


class Root:
    def __init__(self, *names):
        self.inner = {name: Root() for name in names}

    def named_modules(self):
        yield "", self
        yield from self.inner.items()


class Other(Root):
    pass


def test_each_root_module_has_a_name_of_its_own_in_every_step():
    """As CleanRL's SAC, with four critics of one class beside an actor, whose layers have the same names."""
    first, second, actor = roots = Root("fc"), Root("fc"), Other("fc", "mean")
    names = Names()
    for order in (roots, roots[::-1]):  # the order of the first step counts
        assert [names.of(m).name for m in order] == [
            {first: "Root", second: "Root#2", actor: "Other"}[m] for m in order
        ]
    inner = [names.of(m.inner["fc"]).name for m in roots]
    assert inner == ["fc", "Root#2.fc", "Other.fc"] and names.of(actor.inner["mean"]).name == "Other.mean"
    assert [names.of(m).own for m in roots] == [False, True, True]
    assert names.of(second.inner["fc"]).own
    del first, roots, order  # made anew, as in the next fold of a cross-validation
    assert names.of(Root("fc")).name == "Root"
