"""Check that a viewer receives what a program was doing when it died of an out-of-memory, and that no history
is left on.

usage: LASTWINDOW=WHAT lastwindow.py AGENT.PY

WHAT is what the viewer asks for, and what is slow:
  slow    a thousand steps; the agent takes seconds to assemble the history
  every   every step; the program runs out of memory in the step after a captured one
  behind  every step; the agent is still sending the last step but one when the program runs out of memory
  leave   a thousand steps; the viewer detaches before they are over
  lost    one step; the viewer disappears while it is sent
  ops     one step, op by op; what it says about the allocator is printed
and of programs that are started with the agent, where the viewer asks for nothing:
  first   the program runs out of memory before a step ends
  late    it runs out of memory in a long stretch after some steps
  fine    it ends in a long stretch without running out of memory
  own     it turns on its own history, and trains some steps
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
import os, sys, time
import torch

with open(sys.argv[1]) as f:
    space = {"__name__": "gmemtop_agent"}
    exec(compile(f.read(), "gmemtop_agent", "exec"), space)
what = sys.argv[3]
launched = what in ("first", "late", "fine", "own")
agent = space["Agent"](sys.argv[2], launched)
if launched:
    agent.launch()
torch.cuda.set_per_process_memory_fraction(2**28 / torch.cuda.get_device_properties(0).total_memory)
net = torch.nn.Linear(256, 256).cuda()
optimizer = torch.optim.SGD(net.parameters())
if not launched:
    agent.attach()

def step():
    optimizer.zero_grad()
    net(torch.randn(64, 256, device="cuda")).sum().backward()
    optimizer.step()

def slow(original, seconds):
    def call(*args, **kwargs):
        time.sleep(seconds)  # as long as a larger snapshot takes
        return original(*args, **kwargs)
    return call

if what == "own":
    torch.cuda.memory._record_memory_history()
if launched and what != "first":
    for _ in range(5):
        step()
        time.sleep(0.01)  # the pace of a step
kept = []
while what in ("late", "fine") and len(kept) < 100 and (agent.lookout.history is None or len(kept) < 2):
    kept.append(net(torch.randn(64, 256, device="cuda")))
    time.sleep(0.1)
while not launched and agent.windows.open is None:
    step()
    time.sleep(0.01)
if what == "slow":
    torch.cuda.memory._snapshot = slow(torch.cuda.memory._snapshot, 2.5)
if what == "behind":
    space["pickle"] = type("pickle", (), {"dumps": staticmethod(slow(space["pickle"].dumps, 0.5))})
if what == "lost":
    space["pickle"] = type("pickle", (), {"dumps": staticmethod(lambda *args, **kwargs: os.urandom(4 << 20))})
if what == "every":
    step()
    time.sleep(0.5)  # the history of that step is taken out
if what == "behind":
    for _ in range(10):
        step()
if what in ("leave", "lost", "ops"):
    print("there", flush=True)
    while not agent.gone and not (what == "lost" and agent.outbox.produced and agent.link.sock is None):
        step()
        time.sleep(0.01)
    history = "on" if torch._C._cuda_isHistoryEnabled() else "off"
    another = "cannot" if agent.windows.unfinished else "can"
    print("history is %s and another window %s be opened" % (history, another), file=sys.stderr)
elif what in ("fine", "own"):
    print("history is %s" % ("on" if torch._C._cuda_isHistoryEnabled() else "off"), file=sys.stderr)
else:
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


what = os.environ["LASTWINDOW"]
folder = tempfile.mkdtemp(prefix="gm")
path = os.path.join(folder, "x.sock")
s = socket.socket(socket.AF_UNIX)
s.bind(path)
s.listen()
program = subprocess.Popen([sys.executable, "-c", PROGRAM, sys.argv[1], path, what], stdout=subprocess.PIPE,
                           stderr=subprocess.PIPE)
c, _ = s.accept()
frame(c, 64, {"version": 2})
if what in ("first", "late", "fine", "own"):
    pass
elif what in ("every", "behind"):
    frame(c, 70, {"do": "depth", "how": "history"})
    frame(c, 70, {"do": "every", "steps": 1})
else:
    frame(c, 70, {"do": "describe", "steps": 1 if what in ("lost", "ops") else 1000,
                  "how": "ops" if what == "ops" else "history"})
if what == "leave":
    program.stdout.readline()
    frame(c, 68, {})
windows, packed, last, captured = [], b"", {}, set()
try:
    while True:
        size, kind = struct.unpack("<IB", read(c, 5))
        payload = read(c, size - 1)
        if kind == 3:
            head = json.loads(payload)
            captured.update(range(head["first"], head["last"] + 1))
            if what == "lost":
                s.close()
                c.close()
                break
        packed += payload if kind == 4 else b""
        if kind == 5 and what == "ops":
            head = json.loads(zlib.decompress(packed).splitlines()[0].decode())
            print(json.dumps(head.get("rules"), sort_keys=True))
            frame(c, 68, {})
        elif kind == 5:
            windows.append(pickle.loads(zlib.decompress(packed)))
            packed = b""
        last = json.loads(payload) if kind == 8 else last
except EOFError:
    pass
error = program.stderr.read().decode()
shutil.rmtree(folder)
failed = sum(e["action"] == "oom" for history in windows for trace in history["device_traces"] for e in trace)
gaps = max(captured) - min(captured) + 1 - len(captured) if captured else 0
print("exit code %d, %d requests failed, %d steps between were not captured, %s" % (
    program.wait(), failed, gaps, last.get("reason")))
if what in ("first", "late", "fine", "own"):
    print("%d windows" % len(windows))
if "OutOfMemoryError" not in error:
    print(error, end="")
