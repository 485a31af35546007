"""Runs the cells of a notebook, and again the one that loads the model after it was edited."""

import gc
import sys

import torch

FIXED = "--fixed" in sys.argv


class Cell:
    def __init__(self, code):
        self.code, self.defs = code, ()

    def run(self, glbls):
        before = set(glbls)
        exec(compile(self.code, "<cell>", "exec"), glbls)
        self.defs = set(glbls) - before or self.defs


class Runner:
    def __init__(self, cells):
        self.cells, self.glbls = cells, {"__name__": "__main__"}

    def invalidate(self, cell):
        for name in cell.defs:
            self.glbls.pop(name, None)
        gc.collect()
        torch.cuda.empty_cache()

    def run(self, indices):
        for i in indices:
            if FIXED:
                self.invalidate(self.cells[i])
            self.cells[i].run(self.glbls)


imports = Cell("""
import torch
from nets import GPT
""")
load = Cell("""
model = GPT(50257, width=1280, layers=24, heads=20).cuda().eval()
""")
generate = Cell("""
tokens = torch.randint(50257, (1, 16)).cuda()
with torch.no_grad():
    for _ in range(8):
        following = model(tokens)[:, -1].argmax(dim=-1, keepdim=True) % 50257
        tokens = torch.cat([tokens, following], dim=1)
print(tokens.shape)
""")
notebook = Runner([imports, load, generate])
notebook.run([0, 1, 2])
notebook.run([0, 1, 2])
