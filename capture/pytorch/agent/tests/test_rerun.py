"""Ops that run again, in a real torch."""

import pytest

from agent.carry import Carrier


def test_what_was_changed_since_its_group_made_it_is_read_as_it_is():
    torch = pytest.importorskip("torch", reason="needs torch")

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.full((4,), 3.0))

        def forward(self, x):
            made = torch.exp(x * self.weight) + 1  # the second tensor that autograd saves is what exp returns
            made.mul_(2)  # is of no group
            return torch.exp(made.clone())  # the third one

    def learnt(values, groups):
        net = Net()
        carrier = Carrier(torch, {"device": "cpu", "values": values, "groups": groups, "saves": 3})
        carrier.begin()
        try:
            net(torch.full((4,), 0.1)).sum().backward()
            missed, checked, differ = carrier.next()[3:6]
        finally:
            carrier.remove()
        assert not carrier.why
        return net.weight.grad, missed, checked, differ

    want = learnt([], [])[0]
    drops = [{"save": n + 1, "bytes": 16, "how": "drop", "group": n} for n in range(2)]
    got, missed, checked, differ = learnt(
        [dict(e, slot=0, release=0, fetch=0) for e in drops],
        [[["aten::exp", 0], ["aten::add", 0]], [["aten::clone", 0], ["aten::exp", 1]]],
    )
    assert torch.equal(got, want)
    assert (missed, checked, differ) == (0, 2, 0)
