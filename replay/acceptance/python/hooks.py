"""Measure what the agent's hooks take of a training thread whose steps are many small ops.

usage: hooks.py AGENT.py [STEPS]

AGENT.py is the agent's source, as overhead.py takes it. Forty steps with the agent and forty with hooks that
do nothing take turns; a step is a thousand ops on 64 elements. What a hook takes is the difference of the
two; of the function that stands around the backward pass it is the time that PyTorch's own does not take.
Times above 0.4 ms are left out: then others had the processor. Prints one line of JSON: the median and the
mean of what the hooks and that function take together in a step, in microseconds, and the processor time of
the sending thread for each step.
"""
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

import torch

HERE = os.path.dirname(os.path.abspath(__file__))
AT_ONCE, MOST = 40, 400000


def main():
    steps = int(sys.argv[2]) if len(sys.argv) > 2 else 3000
    torch.set_num_threads(1)
    with open(os.path.join(HERE, "overhead.py")) as f:
        viewer = f.read().split('VIEWER = """')[1].split('"""')[0]
    with open(sys.argv[1]) as f:
        space = {"__name__": "gmemtop_agent"}
        exec(compile(f.read(), "gmemtop_agent", "exec"), space)
    small = torch.nn.Parameter(torch.ones(64))
    optimizer = torch.optim.SGD([small], lr=1e-6)

    def step():
        optimizer.zero_grad()
        y = small
        for _ in range(333):
            y = y.sin()
        y.sum().backward()
        optimizer.step()

    with tempfile.TemporaryDirectory(prefix="gm") as folder:
        path = os.path.join(folder, "x.sock")
        reader = subprocess.Popen([sys.executable, "-c", viewer, path, str(space["VERSION"])],
                                  stdout=subprocess.PIPE)
        try:
            reader.stdout.readline()
            agent = space["Agent"](path, False)
            agent.attach()
            while not agent.sender.welcome:
                time.sleep(0.01)
            measure(agent, space["counting"], step, steps)
        finally:
            reader.kill()


def measure(agent, counting, step, steps):
    taken, on = {}, [True]

    def timed(hook):
        times = taken[hook.__name__] = {True: [], False: []}

        def nothing(optimizer, args, kwargs):
            return None

        def around(optimizer, args, kwargs):
            begin = time.perf_counter_ns()
            out = (hook if on[0] else nothing)(optimizer, args, kwargs)
            times[on[0]].append(time.perf_counter_ns() - begin)
            return out

        return around

    torch.autograd.backward, aside = timed_backward(torch.autograd.backward, on)
    hooks = sys.modules["torch.optim.optimizer"]
    for _ in range(20):
        step()
    for hook in agent.hooks:
        hook.remove()
    pre, post = counting(agent.tally, agent.clock, agent._pre, agent._post, agent.caught)
    agent.hooks = [hooks.register_optimizer_step_pre_hook(timed(pre)),
                   hooks.register_optimizer_step_post_hook(timed(post))]
    sender = time.pthread_getcpuclockid(agent.thread.ident)
    sent, begin = time.clock_gettime_ns(sender), time.thread_time_ns()
    for i in range(steps):
        on[0] = i // AT_ONCE % 2 == 0
        step()
    usual = (time.thread_time_ns() - begin) / steps
    sent = time.clock_gettime_ns(sender) - sent
    out = {"step_us": round(usual / 1e3)}
    for name, of in (("median_us", statistics.median), ("mean_us", statistics.mean)):
        took = 0
        for times in taken.values():
            took += of([t for t in times[True] if t < MOST]) - of([t for t in times[False] if t < MOST])
        took += of([t for t in aside[True] if t < MOST]) - of([t for t in aside[False] if t < MOST])
        out[name] = round(took / 1e3, 1)
    out["sender_us"] = round(2 * sent / steps / 1e3, 1)
    out["share"] = round((out["mean_us"] + out["sender_us"]) / out["step_us"], 4)
    print(json.dumps(out))


def timed_backward(ours, on):
    """Return a function that takes turns between the agent's function around PyTorch's backward pass and one
    that does nothing, and what they add to PyTorch's own time."""
    cell = ours.__closure__[ours.__code__.co_freevars.index("original")]
    theirs, inside, aside = cell.cell_contents, [0], {True: [], False: []}

    def inner(*args, **kwargs):
        begin = time.perf_counter_ns()
        try:
            return theirs(*args, **kwargs)
        finally:
            inside[0] = time.perf_counter_ns() - begin

    def nothing(*args, **kwargs):
        return inner(*args, **kwargs)

    def outer(*args, **kwargs):
        begin = time.perf_counter_ns()
        try:
            return (ours if on[0] else nothing)(*args, **kwargs)
        finally:
            aside[on[0]].append(time.perf_counter_ns() - begin - inside[0])

    cell.cell_contents = inner
    return outer, aside


main()
