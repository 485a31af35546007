"""Runs a program, and after each of its optimizers' steps prints a checksum of what that step changed.

    observe.py SCRIPT [ARGUMENT ...]

A line is "step N CHECKSUM". All else that the program prints goes to standard error. The checksum is taken
from memory, without an op of torch. A script whose optimizer is not torch's calls what it finds as
observe.stepped(PARAMETERS) after each step.
"""

import ctypes
import os
import runpy
import sys
import types
import zlib

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook


def main():
    lines = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    steps = 0

    def stepped(parameters):
        nonlocal steps
        steps += 1
        sum = 0
        for p in parameters:
            memory = (ctypes.c_char * (p.numel() * p.element_size())).from_address(p.data_ptr())
            sum = zlib.crc32(memory, sum)
        print("step", steps, f"{sum:08x}", file=lines, flush=True)

    sys.modules["observe"] = types.ModuleType("observe")
    sys.modules["observe"].stepped = stepped
    register_optimizer_step_post_hook(
        lambda optimizer, args, kwargs: stepped(p for g in optimizer.param_groups for p in g["params"])
    )
    torch.set_num_threads(1)
    sys.argv = sys.argv[1:]
    sys.path[0] = os.path.dirname(os.path.abspath(sys.argv[0]))
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
