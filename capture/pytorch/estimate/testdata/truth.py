"""Runs a training of train.py for real and describes two of its steps: python truth.py NAME OUT DESCRIBE.PY."""
import importlib.util
import sys

from train import make

spec = importlib.util.spec_from_file_location("describe", sys.argv[3])
describe = importlib.util.module_from_spec(spec)
spec.loader.exec_module(describe)
model, optimizer, step = make(sys.argv[1], "cpu")
step(0)
recorder = describe.Describe(sys.argv[2], model, optimizer)
for i in (1, 2):
    with recorder.step():
        step(i)
recorder.close()
