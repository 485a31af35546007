"""Tests that a process whose last backward pass raised under a plan ends as it would without one."""

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import torch
from agent.carry import Carrier
from agent.leftovers import clear_leftovers

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = (torch.nn.Parameter(torch.ones(4)) for _ in range(2))

    def forward(self, x):
        first, second = x * self.a, x * self.b
        def trip(gradient):
            raise ArithmeticError
        second.register_hook(trip)  # the branch of first is still in the queue then
        return first.sin().sum() + second.sin().sum()

carrier = Carrier(torch, {})
carrier.begin()
try:
    Net()(torch.ones(4)).backward()
except ArithmeticError:
    END
    print("raised", flush=True)
"""


@pytest.mark.parametrize("end", ["carrier.remove()", "clear_leftovers(torch)"])
def test_what_a_failed_pass_left_does_not_crash_the_process_at_its_end(end):
    pytest.importorskip("torch", reason="needs torch")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.replace("END", end)],
        capture_output=True,
        cwd=Path(__file__).parents[2],
    )
    assert (done.returncode, done.stdout) == (0, b"raised\n"), done.stderr
