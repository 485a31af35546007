"""Print what the agent reports about the allocator in use.

usage: allocators.py AGENT.py FILE

FILE says which: pluggable replaces PyTorch's allocator, here by the C library's.
"""
import json
import sys

import torch

with open(sys.argv[2]) as f:
    if f.read() == "pluggable":
        own = torch.cuda.memory.CUDAPluggableAllocator("libc.so.6", "malloc", "free")
        torch.cuda.memory.change_current_allocator(own)
x = torch.empty(1000, device="cuda")
space = {"__name__": "gmemtop_agent"}
with open(sys.argv[1]) as f:
    exec(compile(f.read(), "gmemtop_agent", "exec"), space)
print(json.dumps(space["allocator_rules"](torch)))
