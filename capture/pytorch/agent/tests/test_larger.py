"""Tests what happens in a step that is larger than planned for."""

from types import SimpleNamespace

import pytest

from agent.carry import Carrier
from agent.sizes import Sizes


def saved(size):
    storage = SimpleNamespace(nbytes=lambda: size)
    return SimpleNamespace(layout="strided", untyped_storage=lambda: storage)


def test_a_step_that_saves_more_than_planned_moves_further_tensors_until_a_backward_pass_frees_them():
    plan = {"sizes": [10, 20, 30], "spills": [[0, 10, -1], [1, 20, 2], [2, 30, 3]]}
    sizes = Sizes(SimpleNamespace(strided="strided"), plan)
    for n, size in enumerate((10, 20, 30)):  # as planned
        sizes.saved(n, saved(size))
        assert sizes.more <= 0
    sizes.next(alike=True)
    sizes.saved(0, saved(12))
    assert sizes.more == 4
    assert sizes.spill(0) is None  # it leaves as planned, or cannot
    assert sizes.spill(7) is None
    sizes.saved(1, saved(19))
    assert sizes.more == 2
    entry = sizes.spill(1)
    assert (entry["how"], entry["release"], entry["bytes"]) == ("swap", 2, 0)
    sizes.spilled(19)
    sizes.saved(2, saved(31))
    assert sizes.more == -15  # enough has left
    sizes.saved(0, saved(11), loads=3)  # the next backward pass is another one's
    assert sizes.more == 2
    sizes.next(alike=True)
    assert sizes.more == 0
    sizes.saved(0, saved(11))
    assert sizes.more == 2  # compared with the plan, not with the largest step since


def test_what_leaves_in_a_larger_step_comes_back_the_same():
    torch = pytest.importorskip("torch", reason="needs torch")

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.full((64,), 0.3))

        def forward(self, x):
            y = x * self.weight  # saves x
            for _ in range(4):  # each saves its result
                y = torch.tanh(y)
            return y.sum()

    def learnt(plan, rows):
        net, carrier, moved = Net(), Carrier(torch, plan), []
        carrier.begin()
        try:
            for n in rows:
                net(torch.linspace(-1, 1, 64 * n).view(n, 64)).backward()
                moved.append(carrier.next())
        finally:
            carrier.remove()
        return net.weight.grad, moved, carrier

    first = 512
    plan = {
        "device": "cpu",
        "slab": first,
        "saves": 5,
        "values": [
            {"save": 1, "bytes": first, "how": "swap", "slot": 0, "release": 2, "fetch": 3, "group": 0}
        ],
        "groups": [],
        "sizes": 5 * [first],
        "spills": [[0, first, -1], [1, first, -1], [2, first, 3], [3, first, 4], [4, first, 5]],
    }
    rows = [2, 1, 3, 2, 8, 2]
    want = learnt({}, rows)[0]
    got, moved, carrier = learnt(plan, rows)
    assert torch.equal(got, want)
    assert carrier.why == ""
    out = [m[0] for m in moved]
    # each save of three rows is 256 bytes larger, so twice of that leaves: all that may
    assert out[:4] == [512, 256, 4 * 768, 512]
    assert out[4] == 4 * 2048 and out[5] == 512  # all that may leave
    assert all(m[1] == m[0] and m[3] == m[5] == 0 for m in moved)
    assert moved[2][4] == 4  # compared with what left
