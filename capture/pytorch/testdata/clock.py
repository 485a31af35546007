"""Check that work that a device runs late keeps the order in which it was issued, and its step. Needs no
torch.

usage: clock.py AGENT.py
"""
import random
import sys

with open(sys.argv[1]) as f:
    space = {"__name__": "gmemtop_agent"}
    exec(compile(f.read(), "gmemtop_agent", "exec"), space)

one_clock, TIME_AT = space["_one_clock"], space["TIME_AT"]
HOST, DEVICE = 1000, 9000  # nanoseconds that it takes to issue an op, and to run it


def op(t, stream=0):
    return ("o", t, HOST, "aten::mm", "forward", "", [], [], [], True, stream, False)


def training(steps, ops, rng, lag, other=0.0):
    """Returns rows of steps with so many ops each as the host issues them, the device's times of these ops,
    and the host's bounds of the steps. The device starts behind the host, by lag; a share of the ops runs on
    another stream."""
    rows, ran, bounds, host, device, step_of = [], {}, [], 0, lag, []
    for step in range(steps):
        begin = host
        for n in range(ops):
            number = step * ops + n
            rows.append(("a", number, 512, host, 4096 + 512 * number))
            stream = 7 if rng.random() < other else 0
            host += HOST
            device = max(device, host)
            ran[len(rows)] = 0, device, DEVICE
            rows.append(op(host, stream))
            device += DEVICE
            host += HOST
            rows.append(("f", number, host))
            step_of += [step] * 3
        host += HOST
        bounds.append((begin, host))
        if rng.random() < 0.3:  # the program looks at its loss
            host = device = max(host, device)
    return rows, ran, bounds, step_of


for seed in range(200):
    rng = random.Random(seed)
    steps, ops = rng.randint(1, 6), rng.randint(1, 30)
    other = rng.choice((0.0, 0.0, 0.2))
    rows, ran, bounds, step_of = training(steps, ops, rng, rng.choice((0, 5000, 500000)), other)
    before = [row for row in rows]
    placed = one_clock(rows, ran, bounds)
    times = [row[TIME_AT[row[0]]] for row in rows]
    assert times == sorted(times), "seed %d: the clock steps back" % seed
    assert len(placed) == steps and all(a < b for a, b in placed), placed
    for (_, end), (begin, _) in zip(placed, placed[1:]):
        assert end == begin or end < begin, "seed %d: steps overlap: %s" % (seed, placed)
    for k, (row, was) in enumerate(zip(rows, before)):
        begin, end = placed[step_of[k]]
        assert begin <= times[k] < end, "seed %d: row %d of step %d is at %d, and the step is [%d, %d)" % (
                seed, k, step_of[k], times[k], begin, end)
        kept = [[x for j, x in enumerate(r) if j not in (TIME_AT[r[0]], 2)] for r in (row, was)]
        assert kept[0] == kept[1]
        if row[0] == "o":
            assert row[2] == DEVICE, row
            if not other:  # the stream's own times, except for ops that the host's bound of a step delays
                assert row[1] >= ran[k][1], (seed, k)
                within = {b for pair in placed for b in pair}
                assert row[1] == ran[k][1] or row[1] in within, (seed, k, row, ran[k])

# A step takes as long as its work on the device, even if the host is done long before.
rows, ran, bounds, _ = training(1, 50, random.Random(0), 0)
(begin, end), = one_clock(rows, ran, bounds)
assert end - begin >= 50 * DEVICE > 2 * (bounds[0][1] - bounds[0][0]), (begin, end, bounds)

# If nothing ran on a device, the host's times stay.
rows = [op(5), ("f", 1, 7)]
assert one_clock(rows, {}, [(0, 9)]) == [(0, 9)] and rows == [op(5), ("f", 1, 7)], rows
