"""Run a given script, and then print the most that torch's allocator held: "counted ALLOCATED RESERVED", in
bytes."""
import runpy
import sys

sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")

import torch

print("counted", torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved())
