"""Check that a plan moves what is saved outside of modules, in the programs that do so, and that hooks that
stay between modules change nothing for a program that uses hooks, torch.func or children of its own.

usage: outside.py CARRY.PY
"""
import contextlib
import os
import sys
import threading

import torch

torch.set_num_threads(1)
with open(sys.argv[1]) as f:
    carry = {}
    exec(compile(f.read(), sys.argv[1], "exec"), carry)
Carrier, SIZE = carry["Carrier"], 256 * 256 * 4


class Direct(torch.nn.Module):
    """Saves its input and the sigmoid's output. A subclass may replace __call__, so that no hook runs."""

    def __init__(self):
        super().__init__()
        self.a, self.b = torch.nn.Linear(256, 256), torch.nn.Linear(256, 256)

    def forward(self, x):
        functional = torch.nn.functional
        y = torch.sigmoid(functional.linear(x, self.a.weight, self.a.bias))
        return functional.linear(y, self.b.weight, self.b.bias)


class Own(Direct):
    def __call__(self, x):
        return self.forward(x)


def loss_of(y):
    return torch.sigmoid(y).square().mean()


def plain(model, x, step):
    loss_of(model(x)).backward()


def direct(model, x, step):
    loss_of(model.forward(x)).backward()


def hooked(model, x, step):
    """Hooks of the program's own: around a loss, around modules, and from one step into the next."""
    if step == 3:
        stack.enter_context(torch.autograd.graph.saved_tensors_hooks(lambda t: 2 * t, lambda t: t / 2))
    if step == 6:
        stack.close()
    with torch.autograd.graph.save_on_cpu() if step % 2 else contextlib.nullcontext():
        y = model(x)
    with torch.autograd.graph.save_on_cpu():
        loss = loss_of(y)
    loss.backward()


def transformed(model, x, step):
    square = torch.func.grad(lambda w: (w * w).sum())
    loss = loss_of(model(x)) + square(torch.ones(4)).sum()
    with torch.autograd.graph.disable_saved_tensors_hooks("none here"):
        loss = loss + torch.func.vmap(torch.func.grad(torch.sin))(torch.ones(4)).sum()
    loss.backward()


def twice(model, x, step):
    """A penalty on a gradient, computed outside of modules."""
    x.requires_grad_()
    grad, = torch.autograd.grad(loss_of(model(x)), x, create_graph=True)
    (grad.square().sum() + loss_of(model(x))).backward()


def forks(model, x, step):
    child = os.fork()
    if child == 0:
        moved = now.out if now is not None else 0
        x.requires_grad_().sigmoid().mean().backward()
        os._exit(now is not None and now.out != moved)
    assert os.waitpid(child, 0)[1] == 0, "the plan acts in a child"
    plain(model, x, step)


def moves(model, x, step):
    """The training moves to another thread after a few steps, and its old thread saves something, too."""
    if step < 3:
        return plain(model, x, step)
    w = torch.ones(256, 256, requires_grad=True)
    w.sigmoid().sum().backward()
    thread = threading.Thread(target=plain, args=(model, x, step))
    thread.start()
    thread.join()


def prints(model, x, step):
    """What is printed in some steps is computed with gradients on."""
    loss = loss_of(model(x))
    if step % 2:
        (loss.exp() * loss).item()
    loss_of(loss * model(x)).backward()


def fails(model, x, step):
    """The loop goes on after an error in the middle of a step."""
    try:
        y = model(x)
        if step % 3 == 1:
            raise ValueError("bad batch")
        loss_of(y).backward()
    except ValueError:
        loss_of(model(x)).backward()


def learn(kind, step, plan, toggles=False):
    """Returns losses and gradients, the bytes moved in each step, and why the plan ended."""
    global now
    torch.manual_seed(1)
    model, carrier, learnt, moved, why = kind(), None, [], [], ""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for n in range(10):
        if plan is not None and carrier is None and not why:
            carrier = Carrier(torch, plan)
            carrier.begin()
        now = carrier and carrier.now
        optimizer.zero_grad()
        step(model, torch.randn(256, 256), n)
        optimizer.step()
        learnt.append([p.grad.double().sum().item() for p in model.parameters()])
        if carrier is not None:
            moved.append(carrier.next()[0])
            why = carrier.why
            if why or toggles:
                carrier.remove()
                carrier = None
    if carrier is not None:
        carrier.remove()
    stack.close()
    return learnt, moved, why


def rule(save, slot):
    return {"save": save, "bytes": SIZE, "how": "swap", "slot": slot * SIZE, "release": save + 1, "fetch": 0}


now, stack, wrong = None, contextlib.ExitStack(), []
lasts = hasattr(torch._C._autograd, "_top_saved_tensors_default_hooks")
# all that is saved, in whatever order, is of one size: inputs, weights and the outputs of sigmoid
PLAN = {"version": 1, "device": "cpu", "slab": 16 * SIZE, "values": [rule(n, n) for n in range(16)],
        "groups": []}
for kind, step, moves in ((Direct, plain, True), (Direct, direct, lasts), (Own, plain, lasts),
                          (Direct, hooked, None), (Direct, transformed, True), (Direct, twice, None),
                          (Direct, forks, True), (Direct, prints, True), (Direct, moves, None),
                          (Direct, fails, None)):
    want, _, _ = learn(kind, step, None)
    for toggles in (False, True):
        got, moved, why = learn(kind, step, PLAN, toggles)
        name = "%s, %s%s" % (kind.__name__, step.__name__, ", toggled" if toggles else "")
        if got != want:
            wrong.append(name + " learns something else")
        if moves is not None and (all(moved), len(moved)) != (moves, 10):
            wrong.append("%s moves %s: %s" % (name, moved, why))
        if len(set(moved)) > 1 and step is prints:
            wrong.append(name + " counts numbers that are printed: %s" % moved)
        if any(moved) and lasts and step is plain and moved[0] < 3 * SIZE:
            wrong.append("%s does not move what the loss saves: %s" % (name, moved))
        if lasts and torch._C._autograd._top_saved_tensors_default_hooks(False) is not None:
            wrong.append(name + " leaves hooks behind")
            torch._C._autograd._pop_saved_tensors_default_hooks()
        print(name, moved[:3], why)
print("\n".join(wrong))
sys.exit(1 if wrong else 0)
