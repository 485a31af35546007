"""See that what a program was doing when it died of an out-of-memory arrives at a viewer that reads, though the agent takes seconds to put the history together.

usage: lastwindow.py AGENT.PY
"""
import json
import os
import pickle
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import zlib

PROGRAM = """
import sys, time
import torch

with open(sys.argv[1]) as f:
    space = {"__name__": "gmemtop_agent"}
    exec(compile(f.read(), "gmemtop_agent", "exec"), space)
torch.cuda.set_per_process_memory_fraction(2**28 / torch.cuda.get_device_properties(0).total_memory)
net = torch.nn.Linear(256, 256).cuda()
optimizer = torch.optim.SGD(net.parameters())
agent = space["Agent"](sys.argv[2], False)
agent.attach()
step = 0
while agent.window is None:
    optimizer.zero_grad()
    net(torch.randn(64, 256, device="cuda")).sum().backward()
    optimizer.step()
    time.sleep(0.01)
original = torch.cuda.memory._snapshot

def slow(*args, **kwargs):
    time.sleep(2.5)
    return original(*args, **kwargs)

torch.cuda.memory._snapshot = slow
torch.empty(2**29, dtype=torch.uint8, device="cuda")
"""


def read(s, n):
    data = b""
    while len(data) < n:
        got = s.recv(n - len(data))
        if not got:
            raise EOFError
        data += got
    return data


def frame(s, kind, told):
    told = json.dumps(told).encode()
    s.sendall(struct.pack("<IB", len(told) + 1, kind) + told)


folder = tempfile.mkdtemp(prefix="gm")
path = os.path.join(folder, "x.sock")
s = socket.socket(socket.AF_UNIX)
s.bind(path)
s.listen()
program = subprocess.Popen([sys.executable, "-c", PROGRAM, sys.argv[1], path], stderr=subprocess.PIPE)
c, _ = s.accept()
frame(c, 64, {"version": 1})
frame(c, 65, {"steps": 1000, "how": "history"})
packed, whole, last = b"", False, {}
try:
    while True:
        size, kind = struct.unpack("<IB", read(c, 5))
        payload = read(c, size - 1)
        packed += payload if kind == 4 else b""
        whole = whole or kind == 5
        last = json.loads(payload) if kind == 8 else last
except EOFError:
    pass
error = program.stderr.read().decode()
shutil.rmtree(folder)
failed = 0
if whole:
    history = pickle.loads(zlib.decompress(packed))
    failed = sum(e["action"] == "oom" for trace in history["device_traces"] for e in trace)
print("exit code %d, whole %s, %d requests failed, %s" % (program.wait(), whole, failed, last.get("reason")))
if "OutOfMemoryError" not in error:
    print(error)
