"""Check that an agent that is told to leave while it opens a window waits for that window to close: the
window runs every op through a dispatch mode, which only the thread that entered it can leave.

usage: leaves.py AGENT.py
"""
import os
import shutil
import sys
import tempfile
import threading
import time

import torch
from torch.optim import optimizer as hooks

space = {"__name__": "gmemtop_agent"}
with open(sys.argv[1]) as f:
    exec(compile(f.read(), "gmemtop_agent", "exec"), space)
torch.set_num_threads(1)
model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.GELU(), torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), 0.1)


def step():
    model(torch.ones(8, 8)).sum().backward()
    optimizer.step()


def until(what, holds):
    late = time.monotonic() + 600
    while not holds():
        assert time.monotonic() < late, what
        step()
        time.sleep(0.01)


def gone():
    return not any(t.name.startswith("gmemtop") for t in threading.enumerate())


step()
folder = tempfile.mkdtemp()
agent = space["Agent"](os.path.join(folder, "x.sock"), False)
agent.attach()
until("the agent has not begun", lambda: hooks._global_optimizer_post_hooks)
looked, opened = agent.windows._not_eager, []


def told_meanwhile():
    """What the training thread calls between asking whether the agent leaves and opening the window."""
    agent.wishes.leaving = True
    agent.bell.ring()
    time.sleep(1)  # so that the sending thread, woken by the bell, looks whether it may leave
    opened.append(True)
    return looked()


agent.windows._not_eager = told_meanwhile
agent.wishes.want.append((agent.wishes.how, 1, False, "", []))
agent.tally.wake()
until("the agent has not gone", lambda: opened and gone())
assert torch._C._len_torch_dispatch_stack() == 0, "a dispatch mode is left"
assert not hooks._global_optimizer_post_hooks, "hooks of optimizers are left"
shutil.rmtree(folder)
