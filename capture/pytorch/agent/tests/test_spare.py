"""Tests what happens when dropped tensors cannot be recomputed, with real torch."""

import pytest

from agent.carry import Carrier
from agent.draws import ONCE, chance_of, draws
from agent.spare import TRIES, Spares


@pytest.fixture(scope="module")
def made():
    """torch, and a module around an op of ours. calls[0] says what the op does from its second call in a
    pass on: "" for the same, "fails", or "differs"."""
    torch = pytest.importorskip("torch", reason="needs torch")
    library = torch.library.Library("gmemtop_tests", "DEF")
    library.define("grow(Tensor x) -> Tensor")
    calls = ["", 0]

    def grow(x):
        calls[1] += 1
        if calls[1] > 1 and calls[0] == "fails":
            raise RuntimeError("no workspace")
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
            self.weight = torch.nn.Parameter(torch.full((4,), 0.3))

        def forward(self, x):
            y = x * self.weight
            return torch.sigmoid(Grow.apply(torch.sin(y) if self.other else torch.abs(y)) + 1)

    yield torch, Net, calls
    library._destroy()


PLAN = {
    "device": "cpu",
    "groups": [
        [
            ["aten::abs", 0],
            ["aten::sin", 0],
            ["gmemtop_tests::grow", 0],
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
    value = {"bytes": 16, "how": "drop", "group": 0, "slot": 0, "release": 0, "fetch": 0}
    last = len(seen) - 1
    carrier = Carrier(
        torch,
        dict(PLAN, values=[dict(value, save=last - 1), dict(value, save=last)], saves=len(seen), **plan),
    )
    carrier.begin()
    return carrier, want


def noted(carrier):
    """The copies of what is dropped from now on, None where none is made."""
    copied, copy = [], carrier.spares.copy
    carrier.spares.copy = lambda *args: copied.append(copy(*args)) or copied[-1]
    return copied


def test_what_cannot_be_recomputed_comes_from_its_copy(made):
    torch, Net, calls = made
    x, net = torch.full((4,), 0.1), Net()
    calls[0] = ""
    carrier, want = begun(torch, net, x, calls)
    try:
        calls[0] = "fails"
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
    x, net = torch.full((4,), 0.1), Net()
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
    x, net = torch.full((4,), 0.1), Net()
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


def test_what_no_step_needs_has_a_copy_in_three_steps(made):
    torch, Net, calls = made
    x, net = torch.full((4,), 0.1), Net()
    calls[0] = ""
    carrier, _ = begun(torch, net, x, calls)
    copied = noted(carrier)
    try:
        for k in range(TRIES + 1):
            copied.clear()
            net(x)  # and no backward pass
            carrier.next()
            assert [s is not None for s in copied] == [k < TRIES] * 2
    finally:
        carrier.remove()


def test_without_room_nothing_is_copied(made):
    torch, _, _ = made
    spares = Spares(torch)
    storage = torch.ones(4).untyped_storage()
    assert spares.copy(0, 0, storage) is None
    spares.open({"groups": [[]]})
    assert spares.copy(0, 0, storage) is not None
    full = Spares(torch)
    full.open({"groups": [[]], "slab": 1 << 62})
    assert full.copy(0, 0, storage) is None
