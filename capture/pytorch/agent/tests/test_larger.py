"""Tests what happens in a step that is larger than planned for."""

import weakref
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


class Kept:
    """A saved tensor that stays."""

    def __init__(self, address, size):
        self.tensor = saved(size)
        self.tensor.untyped_storage = lambda: SimpleNamespace(_cdata=address, nbytes=lambda: size)


def test_what_was_saved_first_leaves_first_once_the_forward_pass_needs_it_no_more(monkeypatch):
    monkeypatch.setitem(Sizes.stays.__globals__, "address_of", lambda storage: storage._cdata)
    sizes = Sizes(
        SimpleNamespace(strided="strided"),
        {"sizes": 6 * [10], "spills": [[0, 10, 3], [1, 10, 2], [2, 10, -1], [4, 10, 5], [5, 10, 6]]},
    )
    kept = [Kept(n, 10) for n in range(4)] + [Kept(1, 10)]
    for n, x in enumerate(kept[:3]):
        sizes.saved(n, x.tensor)
        sizes.stays(n, x)
    sizes.stays(3, kept[4])  # the storage of save 1 is saved once more
    assert sizes.follow(3) is None  # the step is as planned
    sizes.saved(4, saved(16))
    assert sizes.more == 12
    entry, holders = sizes.follow(4)
    assert (entry["save"], entry["how"], entry["release"], holders) == (0, "swap", 4, [kept[0]])
    sizes.spilled(10)
    entry, holders = sizes.follow(4)
    assert (entry["save"], holders) == (1, [kept[1], kept[4]])
    sizes.spilled(10)
    assert sizes.follow(4) is None
    sizes.saved(5, saved(16))
    assert sizes.follow(5) is None  # nothing is left that may leave
    sizes.stays(5, kept[3])
    sizes.saved(0, saved(16), loads=1)
    assert sizes.follow(7) is None  # what was saved before a backward pass is gone
    sizes.stays(0, kept[0])
    sizes.saved(1, saved(16), loads=1)
    assert sizes.follow(3) is None  # the forward pass still needs it
    del kept[0], holders
    assert sizes.follow(4) is None  # its graph is gone


def late_net(torch):
    class Net(torch.nn.Module):
        """Its last layers take n times as much as the first ones."""

        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.full((64,), 0.3))
            self.freed = []

        def forward(self, x, n, spoil=False):
            first = []
            y = x * self.weight  # save 0: x
            for _ in range(3):  # saves 1 to 3: each its result
                y = torch.tanh(y)
                first.append(weakref.ref(y.untyped_storage()))
            kept = y if spoil else None
            y = torch.tanh(y * y).repeat(n, 1)  # saves 4 and 5: its operand twice; save 6
            for _ in range(2):  # saves 7 and 8
                y = torch.tanh(y)
            if spoil:
                kept.add_(1)
            self.freed.append([there() is None for there in first])
            return y.sum()

    return Net()


FIRST = 512
LATE = {
    "device": "cpu",
    "slab": FIRST,
    "saves": 9,
    "values": [{"save": 1, "bytes": FIRST, "how": "swap", "slot": 0, "release": 2, "fetch": 7, "group": 0}],
    "groups": [],
    "sizes": 9 * [FIRST],
    "spills": [[0, FIRST, -1], [1, FIRST, -1], [2, FIRST, 3], [3, FIRST, 6]]
    + [[n, FIRST, n + 1] for n in (6, 7, 8)],
}


def late_steps(torch, plan, rows, spoil=False):
    net, moved = late_net(torch), []
    carrier = Carrier(torch, plan)
    carrier.begin()
    try:
        for n in rows:
            net(torch.linspace(-1, 1, 128).view(2, 64), n, spoil).backward()
            moved.append(carrier.next())
    finally:
        carrier.remove()
    return net, moved, carrier


def test_what_was_saved_before_a_step_was_known_to_be_larger_leaves_after_all():
    torch = pytest.importorskip("torch", reason="needs torch")
    rows = [1, 2, 1, 5, 1]
    want = late_steps(torch, {}, rows)[0].weight.grad
    net, moved, carrier = late_steps(torch, LATE, rows)
    assert torch.equal(net.weight.grad, want)
    assert carrier.why == ""
    # Save 7 of twice the rows is 512 bytes larger, so twice of that leaves: saves 2 and 3, and three saved
    # tensors hold the latter. For save 8 another 1024 bytes leave: save 6, and then itself.
    assert [m[0] for m in moved] == [512, 512 + 2 * 512 + 512 + 1024, 512, 512 + 3 * 512 + 2 * 2560, 512]
    assert all(m[1] == m[0] and m[3] == m[5] == 0 for m in moved)
    assert moved[1][4] == 5  # compared with what left
    assert net.freed == [[True, n > 1, n > 1] for n in rows]


def test_a_tensor_that_left_late_and_was_changed_in_place_is_an_error_as_without_a_plan():
    torch = pytest.importorskip("torch", reason="needs torch")
    said = []
    for plan in ({}, LATE):
        with pytest.raises(RuntimeError, match="modified by an inplace operation") as error:
            late_steps(torch, plan, [2], spoil=True)
        said.append(str(error.value).split("version")[1])
    assert said[0] == said[1]


def test_a_tensor_whose_copy_fails_stays(monkeypatch):
    torch = pytest.importorskip("torch", reason="needs torch")
    real = Carrier._out

    def out(self, it, value, storage, entry):
        if "spilled" in entry:
            raise RuntimeError("no copy")
        real(self, it, value, storage, entry)

    want = late_steps(torch, {}, [1, 2])[0].weight.grad
    monkeypatch.setattr(Carrier, "_out", out)
    net, moved, carrier = late_steps(torch, LATE, [1, 2])
    assert torch.equal(net.weight.grad, want)
    assert [m[0] for m in moved] == [512, 512]
    assert "no copy" in str(carrier.why)
