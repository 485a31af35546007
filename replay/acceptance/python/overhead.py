"""Measure what the agent costs a training: windows of steps with it and without it take turns in one process.

usage: overhead.py AGENT.py [PAIRS [STEPS]]

AGENT.py is the agent's source, which gmemtop run puts in front of PYTHONPATH:

    gmemtop run --headless -- sh -c 'cp "${PYTHONPATH%%:*}/agent.py" agent.py'

DEVICE in the environment says where the network is (cpu by default), WIDTH how wide it is. With OPS a step is
that many ops on 64 elements instead, which take next to no time. On a GPU each window begins and ends with a
synchronisation.

The agent connects once to a viewer in another process that reads everything. Then come pairs of windows, one
with the agent and one with its hooks and functions taken out of torch, in random order. A pair gives the
ratio of two mean step times. The estimate is the mean of the logarithms of these ratios without the outer
fifth on each side; its interval is a bootstrap over pairs. The agent's sending thread runs in both kinds of
window, so its processor time in windows with the agent is added in full, as if it had stopped the training.
There are two ratios: of the time of a step, and of the training thread's processor time, which other programs
disturb less. Prints one line of JSON.
"""
import json
import math
import os
import random
import shutil
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time

import torch

VIEWER = """
import json, socket, struct, sys
s = socket.socket(socket.AF_UNIX)
s.bind(sys.argv[1])
s.listen()
print("listening", flush=True)
while True:
    c, _ = s.accept()
    every = {"id": 0, "do": "every", "steps": 0}
    for kind, told in ((64, {"version": int(sys.argv[2])}), (70, every)):
        told = json.dumps(told).encode()
        c.sendall(struct.pack("<IB", len(told) + 1, kind) + told)
    while c.recv(1 << 16):
        pass
"""


class Block(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.n1, self.n2 = torch.nn.LayerNorm(width), torch.nn.LayerNorm(width)
        self.qkv, self.out = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)
        self.mlp = torch.nn.Sequential(torch.nn.Linear(width, 4 * width), torch.nn.GELU(),
                                       torch.nn.Linear(4 * width, width))

    def forward(self, x):
        n, t, c = x.shape
        q, k, v = (y.view(n, t, 4, c // 4).transpose(1, 2) for y in self.qkv(self.n1(x)).split(c, 2))
        y = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(n, t, c))
        return x + self.mlp(self.n2(x))


def main():
    source = sys.argv[1]
    pairs, steps = (int(x) for x in (sys.argv[2:] + ["300", "5"][len(sys.argv) - 2:])[:2])
    torch.set_num_threads(1)
    torch.manual_seed(0)
    device, width = os.environ.get("DEVICE", "cpu"), int(os.environ.get("WIDTH", "128"))
    model = torch.nn.Sequential(torch.nn.Embedding(256, width), *[Block(width) for _ in range(4)],
                                torch.nn.Linear(width, 256)).to(device)
    optimizer = torch.optim.AdamW(model.parameters())
    x = torch.randint(0, 256, (8, 65)).to(device)

    small = torch.nn.Parameter(torch.ones(64, device=device))
    ops = int(os.environ.get("OPS", "0"))
    if ops:
        optimizer = torch.optim.SGD([small], lr=1e-6)

    def step():
        optimizer.zero_grad()
        if ops:
            y = small
            for _ in range(ops // 3):  # each is one op forward and two backward
                y = y.sin()
            y.sum().backward()
            optimizer.step()
            return
        torch.nn.functional.cross_entropy(model(x[:, :-1]).flatten(0, 1), x[:, 1:].flatten()).backward()
        optimizer.step()

    def now():
        if device != "cpu":
            torch.cuda.synchronize()
        return time.perf_counter(), time.thread_time()

    with open(source) as f:
        code = compile(f.read(), "gmemtop_agent", "exec")
    folder = tempfile.mkdtemp(prefix="gm")
    path = os.path.join(folder, "x.sock")
    space = {"__name__": "gmemtop_agent"}
    exec(code, space)
    argv = [sys.executable, "-c", VIEWER, path, str(space["VERSION"])]
    viewer = subprocess.Popen(argv, stdout=subprocess.PIPE)
    viewer.stdout.readline()
    agent = space["Agent"](path, False)
    agent.attach()

    def wait(done, otherwise):
        late = time.monotonic() + 60
        while not done():
            if agent.guard.dead:
                otherwise = "the agent has switched itself off, so nothing was measured: " + agent.guard.why
            elif time.monotonic() < late:
                time.sleep(0.01)
                continue
            viewer.kill()
            shutil.rmtree(folder, ignore_errors=True)
            sys.exit(otherwise)

    wait(lambda: agent.sender.welcome,
         "the agent met no viewer within a minute: is the protocol of another version?")
    sender = time.pthread_getcpuclockid(agent.thread.ident)
    hooks = sys.modules["torch.optim.optimizer"]

    def take_out():
        for h in agent.hooks:
            h.remove()
        agent.hooks = []
        for owner, name, ours, theirs in agent.patches.list:
            setattr(owner, name, theirs)

    def put_in():
        take_out()  # two windows with the agent may follow each other
        pre, post = space["counting"](agent.tally, agent.clock, agent._pre, agent._post, agent.caught)
        agent.hooks = [hooks.register_optimizer_step_pre_hook(pre),
                       hooks.register_optimizer_step_post_hook(post)]
        agent.tally.half_seen()
        for owner, name, ours, theirs in agent.patches.list:
            setattr(owner, name, ours)

    def window(with_agent):
        (put_in if with_agent else take_out)()
        step()
        sent = time.clock_gettime(sender)
        begin = now()
        for _ in range(steps):
            step()
        return [b - a for a, b in zip(begin, now())] + [time.clock_gettime(sender) - sent]

    try:
        for _ in range(20):
            step()
        before = agent.tally.produced
        r, ratios, without, sent = random.Random(1), [[], []], [], [0.0, 0.0]
        for _ in range(pairs):
            if r.random() < 0.5:
                a, b = window(False), window(True)
            else:
                b, a = window(True), window(False)
            for column in (0, 1):
                ratios[column].append(math.log(b[column] / a[column]))
                sent[column] += b[2] / b[column]
            without.append(a[0] / steps)
        wait(lambda: not agent.tally.rows, "the agent's viewer did not get all steps within a minute")
        if agent.tally.produced - before != pairs * steps:
            sys.exit("the agent saw %d of %d steps" % (agent.tally.produced - before, pairs * steps))
        out = {"step_ms": round(1e3 * statistics.median(without), 3), "pairs": pairs, "steps_a_window": steps,
               "torch": str(torch.__version__)}

        def centre(values):
            values = sorted(values)
            cut = len(values) // 5
            return statistics.mean(values[cut:len(values) - cut])

        for name, found, share in zip(("time", "processor"), ratios, sent):
            share /= pairs
            boots = sorted(centre(r.choices(found, k=len(found))) for _ in range(2000))
            out[name] = {"overhead": round(math.expm1(centre(found)) + share, 5),
                         "interval95": [round(math.expm1(boots[k]) + share, 5) for k in (50, 1949)],
                         "sender": round(share, 5)}
        print(json.dumps(out))
    finally:
        viewer.kill()
        shutil.rmtree(folder, ignore_errors=True)


main()
