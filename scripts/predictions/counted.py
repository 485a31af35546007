"""Run a training script, and record PyTorch's figures for each step:

    counted.py FILE SCRIPT [ARGUMENT ...]

A step ends where an optimizer has stepped. FILE gets a line of three numbers for each step: the number of the
plan that it ran under, 0 for none; its peak of allocated bytes, as PyTorch's allocator counts them
(torch.cuda.max_memory_allocated); and its length in nanoseconds, between two events that the device recorded.
gmemtop's agent is asked only for the plan's number. While it carries out none, the training pauses after each
step, so that it leaves the processor to gmemtop, which plans meanwhile. In virtual time a pause takes none.
"""

import inspect
import runpy
import sys
import time

import torch
from torch.optim import optimizer


def plan():
    """The number of the plan that gmemtop's agent carries out now, 0 for none."""
    for hook in optimizer._global_optimizer_pre_hooks.values():
        if getattr(hook, "gmemtop_agent", False):
            return inspect.getclosurevars(hook).nonlocals["rest"][0].__self__.manager.managed
    return 0


class Counted:
    """Runs at the end of each step, before the agent's hook, which is registered later."""

    def __init__(self, file):
        self.file = file
        self.began = None  # an event at the beginning of the running step
        self.last = None  # the step before it: its plan, its peak, the event at its beginning

    def __call__(self, *_):
        peak = torch.cuda.max_memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        if self.last is not None:
            number, most, began = self.last
            self.began.synchronize()  # it is over: the script has read a loss since
            print(number, most, round(began.elapsed_time(self.began) * 1e6), file=self.file, flush=True)
        number = plan()
        if number == 0:
            time.sleep(0.3)
        now = torch.cuda.Event(enable_timing=True)
        now.record()
        self.last = None if self.began is None else (number, peak, self.began)
        self.began = now


if __name__ == "__main__":
    file, sys.argv = sys.argv[1], sys.argv[2:]
    optimizer.register_optimizer_step_post_hook(Counted(open(file, "w")))
    runpy.run_path(sys.argv[0], run_name="__main__")
