"""Check that the ops of a described step share a GPU's time: they follow one another, and none takes the time
for which the host waited.

usage: overlap.py AGENT.py

A copy from memory that is not pinned holds up the host until the GPU has done what came before.
"""
import json
import sys
import time

import torch

with open(sys.argv[1]) as f:
    space = {"__name__": "gmemtop_agent"}
    exec(compile(f.read(), "gmemtop_agent", "exec"), space)


def fail(error):
    raise error


def main():
    big, labels = torch.zeros(4096, 4096, device="cuda"), torch.zeros(1024)
    window = space["Ops"](torch, time.perf_counter_ns, time.perf_counter_ns(), space["Addresses"](), [], fail)
    window.begin()
    begin = time.perf_counter_ns()
    for _ in range(4):
        product = big @ big
        product += labels.cuda()[0]
        product += torch.ones(4096, device="cuda")
    product.cpu()
    window.steps.append((begin, time.perf_counter_ns()))
    window.end()
    lines = [json.loads(line) for line in "".join(window.pieces({"epoch_ns": 0})).splitlines()]
    ops = [x for x in lines[1:] if x["k"] == "op" and x["t"] >= 0]
    names = {op["name"] for op in ops}
    assert {"aten::mm", "aten::_to_copy", "aten::ones"} <= names, names
    for one, next in zip(ops, ops[1:]):
        # times of events have a microsecond's rounding
        assert one["t"] + one["d"] <= next["t"] + 1000, (one, next)
    (first, last), = lines[0]["steps"]
    print("the ops take", round(100 * sum(op["d"] for op in ops) / (last - first)), "% of the step")


main()
