"""Tests what happens when tensors cannot be recomputed or fetched, with real torch."""

import weakref

import pytest

from agent import carry
from agent.carry import Carrier
from agent.draws import ONCE, chance_of, draws
from agent.spare import Spares
from agent.values import Handle


@pytest.fixture(scope="module")
def made():
    """torch, and a module around an op of ours. calls[0] says what the op does from its second call in a
    pass on: "" for the same, "differs", or what it raises, calls[2] times."""
    torch = pytest.importorskip("torch", reason="needs torch")
    library = torch.library.Library("gmemtop_tests", "DEF")
    library.define("grow(Tensor x) -> Tensor")
    calls = ["", 0, 0]

    def grow(x):
        calls[1] += 1
        if calls[1] > 1 and isinstance(calls[0], Exception) and calls[2]:
            calls[2] -= 1
            raise calls[0]
        return torch.exp(x) + (calls[1] > 1 and calls[0] == "differs")

    library.impl("grow", grow, "CPU")

    class Grow(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            out = torch.ops.gmemtop_tests.grow(x)
            ctx.save_for_backward(out)
            return out

        @staticmethod
        def backward(ctx, grad):
            return grad * ctx.saved_tensors[0]

    class Net(torch.nn.Module):
        other = False  # whether another op comes first

        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.full((SIZE,), 0.3))

        def forward(self, x):
            y = x * self.weight
            return torch.sigmoid(Grow.apply(torch.sin(y) if self.other else torch.abs(y)) + 1)

    yield torch, Net, calls
    library._destroy()


SIZE = 2048  # elements: what is too small does not move to the host
PLAN = {
    "device": "cpu",
    "groups": [
        [
            ["aten::abs", 0],
            ["aten::sin", 0],
            ["gmemtop_tests::grow", -1],
            ["aten::add", 0],
            ["aten::sigmoid", 0],
        ]
    ],
}


def step(torch, net, x, calls):
    """The weight's gradient in one step."""
    calls[1], net.weight.grad = 0, None
    net(x).sum().backward()
    return net.weight.grad.clone()


def begun(torch, net, x, calls, **plan):
    """A carrier that drops what the op and sigmoid make, begun, and the gradient without it."""
    probe = Carrier(torch, {})
    seen = []
    probe.watch = type(
        "Watch", (), {"saved_one": lambda s, t, stays: seen.append(t), "loaded": lambda s, t: None}
    )()
    probe.begin()
    want = step(torch, net, x, calls)
    probe.remove()
    value = {"bytes": 4 * SIZE, "how": "drop", "group": 0, "slot": 0, "release": 0, "fetch": 0}
    last = len(seen) - 1
    carrier = Carrier(
        torch,
        dict(PLAN, values=[dict(value, save=last - 1), dict(value, save=last)], saves=len(seen), **plan),
    )
    carrier.begin()
    return carrier, want


def noted(carrier):
    """The copies of what is dropped from now on, None where none is made."""
    copied, spare = [], carrier.spares.spare
    carrier.spares.spare = lambda *args: copied.append(spare(*args)) or copied[-1]
    return copied


NO_WORKSPACE = RuntimeError("no workspace")


def test_what_cannot_be_recomputed_comes_from_its_copy(made):
    torch, Net, calls = made
    x, net = torch.full((SIZE,), 0.1), Net()
    calls[0] = ""
    carrier, want = begun(torch, net, x, calls)
    try:
        calls[0], calls[2] = NO_WORKSPACE, 9
        assert torch.equal(step(torch, net, x, calls), want)
        carrier.next()
        assert carrier.why.code == "rerun_failed"
        assert carrier.why.values == ("gmemtop_tests::grow", "RuntimeError", "no workspace")
        assert carrier.spares.room > 1 << 20
        assert draws(chance_of(torch.ops.gmemtop_tests.grow.default, torch), (), {})
    finally:
        carrier.remove()
        ONCE.discard("gmemtop_tests::grow")


@pytest.mark.parametrize("allowed", [False, True])
def test_what_comes_out_different_comes_from_its_copy_unless_that_is_allowed(made, allowed):
    torch, Net, calls = made
    x, net = torch.full((SIZE,), 0.1), Net()
    calls[0] = ""
    carrier, want = begun(torch, net, x, calls, may_differ=allowed)
    try:
        calls[0] = "differs"
        assert torch.equal(step(torch, net, x, calls), want) != allowed
        figures = carrier.next()
        assert figures[4:] == (2, 2)
        assert bool(carrier.why) != allowed
    finally:
        carrier.remove()


def test_a_tensor_has_a_copy_until_it_was_recomputed_on_the_same_path(made):
    torch, Net, calls = made
    x, net = torch.full((SIZE,), 0.1), Net()
    calls[0] = ""
    carrier, _ = begun(torch, net, x, calls)
    copied = noted(carrier)
    room = carrier.spares.room
    try:
        counts = []
        for net.other in (False, False, True, True, False):
            copied.clear()
            step(torch, net, x, calls)
            carrier.next()
            counts.append(sum(s is not None for s in copied))
            assert not carrier.why
        assert counts == [2, 0, 2, 0, 0]
        copied.clear()
        assert carrier.spares.room == room
    finally:
        carrier.remove()


def test_what_no_step_needs_has_a_copy_in_each(made):
    torch, Net, calls = made
    x, net = torch.full((SIZE,), 0.1), Net()
    calls[0] = ""
    carrier, _ = begun(torch, net, x, calls)
    copied = noted(carrier)
    try:
        for _ in range(4):
            copied.clear()
            net(x)  # and no backward pass
            carrier.next()
            assert [s is not None for s in copied] == [True] * 2
    finally:
        carrier.remove()


def test_what_the_program_holds_is_proven_too(made):
    torch, Net, calls = made
    x, net = torch.full((SIZE,), 0.1), Net()
    calls[0] = ""
    carrier, want = begun(torch, net, x, calls)
    copied = noted(carrier)
    try:
        for has in (True, False):
            copied.clear()
            calls[1], net.weight.grad = 0, None
            held = net(x)
            held.sum().backward()
            assert torch.equal(net.weight.grad, want)
            carrier.next()
            assert [s is not None for s in copied] == [has] * 2
    finally:
        carrier.remove()


@pytest.mark.parametrize("does, ends", [("", False), ("differs", True), (NO_WORKSPACE, True)])
def test_without_room_on_the_host_tensors_stay_until_they_are_proven(made, does, ends):
    torch, Net, calls = made
    x, net = torch.full((SIZE,), 0.1), Net()
    calls[0] = ""
    carrier, want = begun(torch, net, x, calls)
    carrier.spares.room = 0
    copied = noted(carrier)
    try:
        calls[0], calls[2] = does, 9
        assert torch.equal(step(torch, net, x, calls), want)
        assert [s.stays for s in copied] == [True] * 2
        assert carrier.next()[3] == 2  # missed
        assert bool(carrier.why) == ends
        copied.clear()
        if not ends:
            assert torch.equal(step(torch, net, x, calls), want)
            assert copied == [None] * 2 and carrier.next()[3] == 0
    finally:
        carrier.remove()
        ONCE.discard("gmemtop_tests::grow")


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("memory", [False, True])
def test_what_fails_though_it_is_proven_is_tried_again(made, memory, times):
    torch, Net, calls = made
    x, net = torch.full((SIZE,), 0.1), Net()
    calls[0] = ""
    carrier, want = begun(torch, net, x, calls)
    carrier.rescue.moves = True
    try:
        step(torch, net, x, calls)
        carrier.next()
        calls[0] = torch.cuda.OutOfMemoryError("out of memory") if memory else NO_WORKSPACE
        calls[2] = times
        assert torch.equal(step(torch, net, x, calls), want)
        assert calls[2] == 0
        # the second time, x and what abs made moved to the host
        assert (carrier.rescue.moved > 0) == (times == 2)
        carrier.next()
        assert carrier.why.code == "rerun_retried"
        assert carrier.why.values[:3] == ("gmemtop_tests::grow", type(calls[0]).__name__, str(calls[0]))
        again = draws(chance_of(torch.ops.gmemtop_tests.grow.default, torch), (), {})
        assert again != memory  # later plans do not run it again, unless it lacked memory
    finally:
        carrier.remove()
        ONCE.discard("gmemtop_tests::grow")


def test_what_fails_three_times_raises_its_own_error(made):
    torch, Net, calls = made
    x, net = torch.full((SIZE,), 0.1), Net()
    calls[0] = ""
    carrier, _ = begun(torch, net, x, calls)
    try:
        step(torch, net, x, calls)
        carrier.next()
        calls[0], calls[2] = NO_WORKSPACE, 3
        with pytest.raises(RuntimeError, match="no workspace"):
            step(torch, net, x, calls)
    finally:
        carrier.remove()
        ONCE.discard("gmemtop_tests::grow")


def test_saved_tensors_move_to_the_host_if_others_cannot_come_back(made, monkeypatch):
    """What the program holds itself stays."""
    torch, _, _ = made
    last = {"bytes": 4 * SIZE, "how": "swap", "save": 5, "slot": 0, "release": 5, "fetch": -1}
    plan = {"device": "cpu", "values": [last], "slab": 4 * SIZE, "saves": 8}
    weight = torch.nn.Parameter(torch.full((SIZE,), 0.3))

    class Chain(torch.nn.Module):
        def forward(self, x):
            made = [weight * x]
            for k in range(6):
                made.append(made[-1].sin() if k % 2 else made[-1].exp())
            held.extend(made[1:2])
            stores.extend(weakref.ref(t.untyped_storage()) for t in made)
            return made[-1].sigmoid()

    held, stores = [], []
    net, x = Chain(), torch.full((SIZE,), 0.1)
    net(x).sum().backward()
    want, weight.grad = weight.grad, None
    failing, space_for = [2], carry.space_for

    def scarce(*args):
        if failing[0]:
            failing[0] -= 1
            raise torch.cuda.OutOfMemoryError("out of memory")
        there.append([s() is not None for s in stores])
        return space_for(*args)

    monkeypatch.setattr(carry, "space_for", scarce)
    carrier = Carrier(torch, plan)
    carrier.rescue.moves = True
    carrier.begin()
    there = []
    try:
        held, stores = [], []
        net(x).sum().backward()
        assert torch.equal(weight.grad, want)
        assert failing == [0]
        # of what was saved, only what the program holds is still on the device
        assert there[0] == [False, True] + [False] * 5
        carrier.next()
        assert carrier.why.code == "fetch_retried"
    finally:
        carrier.remove()


def test_a_saved_tensor_that_moved_notices_changes(made):
    torch, _, _ = made
    carrier = Carrier(torch, {"device": "cpu"})
    carrier.rescue.moves = True
    x = torch.full((SIZE,), 0.3).requires_grad_()
    a, b = x * 2, x * 3
    packed = [carry.pack(carrier, carrier.now, t) for t in (a, b)]
    b += 1
    want, kept = a.detach().clone(), b
    del a
    carrier.rescue._all(carrier.now)
    assert [type(p.tensor) for p in packed] == [Handle, Handle]
    assert carrier.rescue.moved == 4 * SIZE  # b is held here
    assert torch.equal(carry.unpack(packed[0]), want)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        carry.unpack(packed[1])
    assert kept is not None


def test_spares_need_room_on_the_host(made):
    torch, _, _ = made
    spares = Spares(torch)
    storage = torch.ones(4).untyped_storage()
    assert spares.spare(0, 0, storage) is None
    spares.open({"groups": [[]]})
    assert not spares.spare(0, 0, storage).stays
    full = Spares(torch)
    full.open({"groups": [[]], "slab": 1 << 62})
    assert full.spare(0, 0, storage).stays
