"""Make the calls that carry out a plan fail, one after another, and check that training goes on and learns
the same.

usage: failing.py CARRY.PY
"""
import sys

import torch
from torch.nn.modules import module as hooks

torch.set_num_threads(1)
with open(sys.argv[1]) as f:
    carry = {}
    exec(compile(f.read(), sys.argv[1], "exec"), carry)
Carrier = carry["Carrier"]

# Calls that may always fail once: what brings a tensor back that is needed is tried again.
ANY = ["region.push", "region._others", "hooks", "_save", "now.known", "now.value", "_out", "same.sum"]
ANY += ["same.compare", "rerun._note", "rerun._held", "rerun._made", "rerun._run", "rerun._given"]
ANY += ["rerun.again", "spares.spare", "fetch"]


class Net(torch.nn.Module):
    """Saves its input, which is swapped, and the sigmoid's output, which is dropped. In some steps it changes
    the sigmoid's input, before or after the output has left."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.changes = torch.nn.Linear(64, 256), torch.nn.Linear(256, 10), 0
        self.register_buffer("shift", torch.ones(256))

    def forward(self, x):
        self.shift.fill_(1.0)
        u = self.a(x) + self.shift
        if self.changes == 1:
            self.shift.mul_(1.5)
        u = torch.sigmoid(u)
        if self.changes == 2:
            self.shift.mul_(1.5)
        return self.b(u)


PLAN = {"version": 1, "device": "cpu", "slab": 1 << 20,
        "values": [{"save": 0, "bytes": 128 * 64 * 4, "how": "swap", "slot": 0, "release": 1, "fetch": 0},
                   {"save": 1, "bytes": 128 * 256 * 4, "how": "drop", "group": 0}],
        "groups": [[["aten::addmm", 0], ["aten::add", 0], ["aten::sigmoid", 0]]]}


def learn(carrier):
    torch.manual_seed(1)
    net, losses, moved = Net(), [], []
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    if carrier is not None:
        carrier.begin()
    for step in range(8):
        net.changes = step % 3
        optimizer.zero_grad()
        loss = net(torch.randn(128, 64)).square().mean()
        loss.backward()
        optimizer.step()
        losses.append((loss.item(), [p.grad.sum().item() for p in net.parameters()]))
        if carrier is not None:
            moved.append(carrier.next())
            if carrier.why:  # as the agent does
                carrier.remove()
                carrier = None
    if carrier is not None:
        carrier.remove()
    return losses, moved


def state():
    tables = [len(getattr(hooks, n)) for n in dir(hooks) if n.startswith("_global_")
              and isinstance(getattr(hooks, n), dict)]
    return tables, torch._C._autograd._saved_tensors_hooks_disable, torch._C._len_torch_dispatch_stack()


class Failing(Carrier):
    """Makes the n-th call of a method fail."""

    def __init__(self, plan, method, n):
        Carrier.__init__(self, torch, plan)
        self.failed, self.calls = False, 0
        part, _, name = method.rpartition(".")
        owner = getattr(self, part) if part else self
        if part == "now":  # one is made for each iteration
            owner = type(owner)
            self.restore = owner, name, getattr(owner, name)
        original = getattr(owner, name)

        def call(*args, **kwargs):
            # Before the program changes a tensor in place, what needs its bytes must be found.
            last_resort = method == "now.known" and sys._getframe(1).f_code.co_name == "_spoil"
            self.calls += not last_resort
            if self.calls == n and not last_resort:
                self.failed = True
                raise RuntimeError("injected")
            return original(*args, **kwargs)

        setattr(owner, name, call)

    restore = None

    def done(self):
        if self.restore is not None:
            setattr(*self.restore)


before, tried, wrong = state(), 0, []
want, _ = learn(None)
got, moved = learn(Carrier(torch, PLAN))
if got != want or not all(m[0] for m in moved) or not any(m[2] for m in moved):
    wrong.append("the plan does nothing, or wrong: %s" % moved)
for method in ANY:
    for n in range(1, 1000):
        carrier = Failing(PLAN, method, n)
        try:
            try:
                got, moved = learn(carrier)
            finally:
                carrier.done()
        except Exception as e:
            wrong.append("call %d of %s ends training: %r" % (n, method, e))
            carrier.remove()
            continue
        if not carrier.failed:
            if n == 1:
                wrong.append("%s is never called" % method)
            break
        tried += 1
        if got != want:
            wrong.append("behind call %d of %s it learns something else" % (n, method))
        if state() != before:
            wrong.append("behind call %d of %s something is left" % (n, method))
        if "injected" not in carrier.why:
            wrong.append("call %d of %s is not said: %r" % (n, method, carrier.why))
print("%d calls failed" % tried)
print("\n".join(wrong))
sys.exit(1 if wrong or tried < 100 else 0)
