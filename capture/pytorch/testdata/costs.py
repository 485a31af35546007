"""Measure what carrying out plans costs, and check that an exception from a signal handler during that leaves
nothing behind.

usage: costs.py AGENT.py
"""
import sys

import torch

with open(sys.argv[1]) as f:
    agent = {"__name__": "gmemtop_agent"}
    exec(compile(f.read(), "gmemtop_agent", "exec"), agent)
torch.set_num_threads(1)
seed = torch.get_rng_state()


def left():
    """What is on torch's stacks: hooks on saved tensors, dispatch modes."""
    try:
        torch._C._autograd._saved_tensors_hooks_disable("looks")
        hooks = 0
    except RuntimeError:
        hooks = 1
    torch._C._autograd._saved_tensors_hooks_enable()
    return hooks, torch._C._len_torch_dispatch_stack()


costs = agent["Costs"](torch).measure(1 << 20)
assert costs["bytes"] == [agent["SMALL"], 1 << 20], costs
assert min(costs["out"] + costs["in"]) > 0 and costs["again"] >= 0, costs
assert left() == (0, 0), left()

save, calls = agent["Carrier"]._save, []


def interrupted(carrier, it, t):
    calls.append(carrier.rerun.wanted)
    if len(calls) == stop:
        raise KeyboardInterrupt
    return save(carrier, it, t)


agent["Carrier"]._save = interrupted
stop = 0
agent["Costs"](torch).measure(1 << 20)
saves = len(calls)
for stop in range(1, saves + 1, max(saves // 50, 1)):  # in the copies and in both kinds of chains
    del calls[:]
    try:
        agent["Costs"](torch).measure(1 << 20)
        raise SystemExit("save %d was not interrupted" % stop)
    except KeyboardInterrupt:
        pass
    assert left() == (0, 0), "interrupted at save %d of %d: hooks and modes %s are left" % (
            stop, saves, left())
assert torch.equal(seed, torch.get_rng_state()), "it draws"
