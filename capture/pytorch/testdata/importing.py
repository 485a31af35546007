"""Attach in the middle of importing torch, as happens when a program has only just started.

usage: importing.py AGENT.PY
"""
import gc
import sys
import threading
import time


class Finder(object):
    """Attaches when Python looks for one of torch's modules, early on, and finds nothing itself."""

    done = False

    def find_spec(self, name, path=None, target=None):
        if name.startswith("torch.") and "torch.optim" not in sys.modules and not self.done:
            self.done = True
            with open(sys.argv[1]) as f:
                exec(compile(f.read() + "\n\nattach('/nowhere/x.sock')\n", "gmemtop_agent", "exec"), space)
            time.sleep(0.5)  # time for the agent's thread to do what it must not do yet
            self.meddled = "torch.optim" in sys.modules
        return None


space = {"__name__": "gmemtop_agent"}
finder = Finder()
sys.meta_path.insert(0, finder)
import torch

sys.meta_path.remove(finder)
assert finder.done and not finder.meddled
model = torch.nn.Linear(2, 2)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
from torch.optim import optimizer as hooks

began = time.monotonic()
while not hooks._global_optimizer_post_hooks and time.monotonic() < began + 60:
    time.sleep(0.01)
if not any(t.name == "gmemtop" for t in threading.enumerate()):
    agents = [o for o in gc.get_objects() if type(o).__name__ == "Agent"]
    raise AssertionError("the agent is gone: %r" % [(a.guard.dead, a.guard.why) for a in agents])
assert hooks._global_optimizer_post_hooks, "the agent has not begun"
model(torch.ones(1, 2)).sum().backward()
optimizer.step()
