"""Measure how much longer a step of small ops takes while the agent describes it, op by op.

usage: described.py AGENT.py [ROUNDS]

AGENT.py is the agent's source, as overhead.py takes it. Four kinds of step take turns: as it is, under a
dispatch mode of torch that only passes ops on, while a window describes it, and while one describes what
autograd saves as well. Of each kind the shortest of all steps counts, in the training thread's processor
time, since other programs only ever add to it; steps are short, so that some run undisturbed. The mode that
only passes ops on is what any description through torch's dispatcher costs at least. Prints one line of JSON
per step; its ops are those that the description notes, and views, which it does not note, cost as well.
"""

import json
import sys
import time

import torch
from torch.utils._python_dispatch import TorchDispatchMode


class PassOn(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


class Scale(torch.nn.Module):
    """Small ops, one after the other, four at a time."""

    def __init__(self, repeats):
        super().__init__()
        self.repeats, self.weight = repeats, torch.nn.Parameter(torch.randn(16))

    def forward(self, x):
        for _ in range(self.repeats):
            x = (x * self.weight + self.weight).tanh() - 0.5
        return x


class Block(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = torch.nn.LayerNorm(width)
        self.mlp = torch.nn.Sequential(
            torch.nn.Linear(width, 4 * width), torch.nn.GELU(), torch.nn.Linear(4 * width, width)
        )

    def forward(self, x):
        return x + self.mlp(self.norm(x))


def training(net, x):
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-6)

    def step():
        optimizer.zero_grad()
        net(x).sum().backward()
        optimizer.step()

    return step, optimizer


STEPS = {
    "20 forward ops on 64 elements": lambda: training(Scale(5), torch.randn(4, 16)),
    "2 blocks of width 64, 64 rows": lambda: training(
        torch.nn.Sequential(Block(64), Block(64)), torch.randn(64, 64)
    ),
}
AT_ONCE = 300  # steps of a kind before those of the next


def fail(error):
    raise error


def main():
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 2
    torch.set_num_threads(1)
    with open(sys.argv[1]) as f:
        space = {"__name__": "gmemtop_agent"}
        exec(compile(f.read(), "gmemtop_agent", "exec"), space)
    clock, addresses = time.perf_counter_ns, space["Addresses"]()

    def shortest(step):
        least = sys.maxsize
        for _ in range(AT_ONCE):
            begin = time.thread_time_ns()
            step()
            least = min(least, time.thread_time_ns() - begin)
        return least

    def passed(step, optimizer):
        with PassOn():
            return shortest(step)

    def described(step, optimizer, carrier=None):
        window = space["Ops"](torch, clock, clock(), addresses, [optimizer], fail)
        window.begin()
        if carrier is not None:
            carrier.watch = window
        try:
            return shortest(step), len([row for row in window.rows.list if row[0] == "o"]) // AT_ONCE
        finally:
            window.end()

    def saved(step, optimizer):
        carrier = space["Carrier"](torch, {})
        carrier.begin()
        try:
            return described(step, optimizer, carrier)[0]
        finally:
            carrier.remove()

    for name, make in STEPS.items():
        step, optimizer = make()
        for _ in range(3):
            step()
        best = dict.fromkeys(("plain", "passed", "described", "saved"), sys.maxsize)
        for _ in range(rounds):
            best["plain"] = min(best["plain"], shortest(step))
            best["passed"] = min(best["passed"], passed(step, optimizer))
            ns, ops = described(step, optimizer)
            best["described"] = min(best["described"], ns)
            best["saved"] = min(best["saved"], saved(step, optimizer))
        out = {"step": name, "ops": ops, "plain_ms": round(best["plain"] / 1e6, 2)}
        for kind in ("passed", "described", "saved"):
            out[kind + "_times"] = round(best[kind] / best["plain"], 2)
        out["microseconds_an_op"] = round((best["described"] - best["passed"]) / 1e3 / ops, 2)
        print(json.dumps(out), flush=True)


main()
