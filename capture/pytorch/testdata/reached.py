"""Check that a program that is reached while it trains offloads what autograd saves from its next step on, if
that is asked for, and that nothing of this is left behind.

usage: reached.py AGENT.py
"""
import os
import shutil
import sys
import tempfile
import threading
import time

import torch
from torch.nn.modules import module
from torch.optim import optimizer as hooks

space = {"__name__": "gmemtop_agent"}
with open(sys.argv[1]) as f:
    exec(compile(f.read(), "gmemtop_agent", "exec"), space)
space["settings"].unplanned = ("cpu",)
torch.set_num_threads(1)
model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.GELU(), torch.nn.Linear(256, 1))
optimizer = torch.optim.SGD(model.parameters(), 0.1)


def step():
    model(torch.ones(256, 64)).sum().backward()
    optimizer.step()


def until(what, holds):
    late = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < late, what
        step()
        time.sleep(0.01)


step()
folder = tempfile.mkdtemp()
agent = space["Agent"](os.path.join(folder, "x.sock"), False)
agent.attach()
until("the agent has not begun", lambda: hooks._global_optimizer_post_hooks)
step()
assert isinstance(agent.manager.carrier, space["Offload"]), agent.manager.carrier
manager = agent.manager
until("nothing is moved", lambda: 0 < manager.happened[0] == manager.happened[1])
child = os.fork()
if child == 0:
    agent.manager.unplanned = ()  # as if offloading had been given up before
    for _ in range(3):
        step()
    os._exit(0 if agent.pid == os.getpid() and agent.manager.carrier is None else 1)
assert os.waitpid(child, 0)[1] == 0, "a child of fork is offloaded though its parent no longer was"
agent.wishes.leaving = True
agent.bell.ring()
until("the agent has not gone", lambda: not any(t.name == "gmemtop" for t in threading.enumerate()))
assert agent.manager.carrier is None and not module._global_forward_pre_hooks, "hooks of modules are left"
assert not os.path.exists(os.path.join(folder, "%d.json" % os.getpid())), "its word is left"
shutil.rmtree(folder)  # the child ended as if killed and left its file
