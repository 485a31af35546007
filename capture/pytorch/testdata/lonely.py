"""Check that an agent that finds no viewer goes away and leaves nothing behind.

usage: lonely.py AGENT.PY
"""
import os
import sys
import tempfile
import threading
import time

import torch
from torch.optim import optimizer as hooks

space = {"__name__": "gmemtop_agent"}
with open(sys.argv[1]) as f:
    exec(compile(f.read(), "gmemtop_agent", "exec"), space)
space["ALONE"] = 1
model = torch.nn.Linear(2, 2)
optimizer = torch.optim.SGD(model.parameters(), 0.1)


def lives():
    return any(t.name == "gmemtop" for t in threading.enumerate())


def step():
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()


backward = torch.autograd.backward
step()
nowhere = os.path.join(tempfile.mkdtemp(), "nowhere")
space["attach"](os.path.join(nowhere, "x.sock"))
assert lives()
began = time.monotonic()
while lives() and time.monotonic() < began + 60:
    step()
    time.sleep(0.01)
step()
assert not lives(), "it still waits"
assert len(hooks._global_optimizer_post_hooks) == 0 and torch.autograd.backward is backward, "it left hooks"
assert not os.path.exists(nowhere), "it made the folder of the viewer that does not exist"
os.rmdir(os.path.dirname(nowhere))
