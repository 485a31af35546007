"""Train a network once with each agent in a folder, in the order of their names: SCENARIO-NAME.py. Each agent
attaches before and is gone after.

usage: broken.py SOCKET FOLDER
"""
import os
import sys
import threading
import time

import torch
import train
from torch.nn.modules import module as modules
from torch.optim import optimizer as hooks


def agents():
    return [t for t in threading.enumerate() if t.name == "gmemtop"]


train.STEPS = 16
for file in sorted(os.listdir(sys.argv[2])):
    name = file[:-len(".py")]
    train.write("begins", name)
    with open(os.path.join(sys.argv[2], file)) as f:
        space = {"__name__": "gmemtop_agent"}
        exec(compile(f.read(), "gmemtop_agent", "exec"), space)
    space["attach"](sys.argv[1])
    torch.manual_seed(1)
    getattr(train, name.partition("-")[0])(name)
    more = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1)  # training goes on
    for _ in range(6000):
        more.step()
        if not agents():
            break
        time.sleep(0.01)
    left = [torch._C._len_torch_dispatch_stack(), len(hooks._global_optimizer_pre_hooks),
            len(modules._global_forward_pre_hooks), len(agents())]
    if any(left):
        raise RuntimeError(
                "the agent of %s leaves modes, hooks, hooks of modules, threads: %s" % (name, left))
