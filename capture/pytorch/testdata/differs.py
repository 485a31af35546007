"""Check that a plan reports it when a tensor comes back different.

usage: differs.py CARRY.PY

A sigmoid that gives a little more each time stands for ops that add in no fixed order, and a byte changed on
the host for a copy that went wrong.
"""
import sys

import torch

torch.set_num_threads(1)
with open(sys.argv[1]) as f:
    carry = {}
    exec(compile(f.read(), sys.argv[1], "exec"), carry)

BYTES = 128 * 33 * 2
ran, wobbles = 0, False
library = torch.library.Library("aten", "IMPL")


def sigmoid(x):
    global ran
    ran += 1
    wobble = 2.0 ** -6 * (ran % 2) if wobbles else 0
    return torch.empty_like(x).copy_(1 / (1 + torch.exp(-x.float()))) + wobble


library.impl("sigmoid", sigmoid, "CPU")


class Net(torch.nn.Module):
    """Saves its input, the sigmoid's output (whose size is not a multiple of eight), and weights."""

    def __init__(self):
        super().__init__()
        self.a, self.b = torch.nn.Linear(64, 33).bfloat16(), torch.nn.Linear(33, 10).bfloat16()

    def forward(self, x):
        return self.b(torch.sigmoid(self.a(x)))


def train(steps, plan, meddle=None):
    torch.manual_seed(1)
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    carrier = carry["Carrier"](torch, plan)
    carrier.begin()
    moved = []
    for step in range(steps):
        optimizer.zero_grad()
        loss = net(torch.randn(128, 64, dtype=torch.bfloat16)).float().square().mean()
        if meddle is not None:
            meddle(carrier, step)
        loss.backward()
        optimizer.step()
        moved.append(carrier.next())
        if carrier.why:
            break
    carrier.remove()
    return carrier, moved


def plan(how, **more):
    value = {"save": 1, "bytes": BYTES - BYTES % 2, "how": how, "group": 0, "slot": 0,
             "release": 2, "fetch": 0}
    return dict({"version": 1, "device": "cpu", "slab": 1 << 16, "values": [value],
                 "groups": [[["aten::sigmoid", 0]]]}, **more)


def expect(what, got, want):
    if got != want:
        print("%s: %r, not %r" % (what, got, want))
        sys.exit(1)


for how in "swap", "drop":
    carrier, moved = train(120, plan(how))
    expect(how + ": reason", carrier.why, "")
    expect(how + ": missed", sum(m[3] for m in moved), 0)
    checked = [k for k, m in enumerate(moved) if m[4:] == (1, 0)]
    expect(how + ": steps that compare", checked, [0, 1, 2, 50, 100])

wobbles = True
carrier, moved = train(120, plan("drop"))
expect("steps until it is given up", len(moved), 1)
expect("differs", carrier.differs, True)
OTHERS = "1 of 1 tensors were not bit-identical when used again; the first was saved tensor 2, which "
expect("reason", carrier.why, OTHERS + "aten::sigmoid recomputed")
carrier, moved = train(60, plan("drop", may_differ=True))
expect("that may differ: reason", carrier.why, "")
expect("that may differ: steps", [k for k, m in enumerate(moved) if m[5]], [0, 1, 2, 50])
wobbles = False


def last_byte(carrier, step):
    if step == 2:
        carrier.slab[BYTES - 1] += 1


carrier, moved = train(120, plan("swap"), last_byte)
expect("steps until a wrong copy is seen", len(moved), 3)
expect("reason", carrier.why, OTHERS + "came back from the host")
print("what differs is found, and nothing else")
