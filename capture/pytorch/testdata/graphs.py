"""Check that a plan ends when the program starts using CUDA graphs, and that training goes on.

usage: graphs.py CARRY.PY

Without a GPU, we make torch believe that there is one, and that it captures a graph.
"""
import sys

import torch

torch.set_num_threads(1)
with open(sys.argv[1]) as f:
    carry = {}
    exec(compile(f.read(), sys.argv[1], "exec"), carry)

capturing = False
torch.cuda.is_initialized = lambda: True
torch.cuda.is_current_stream_capturing = lambda: capturing


class CUDAGraph(object):
    replays = captures = 0

    def replay(self):
        CUDAGraph.replays += 1

    def capture_begin(self):
        CUDAGraph.captures += 1


torch.cuda.CUDAGraph = CUDAGraph
own = CUDAGraph.replay, CUDAGraph.capture_begin


class Net(torch.nn.Module):
    """Saves its input and the sigmoid's output. May start a capture after the first layer."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.captures = torch.nn.Linear(64, 256), torch.nn.Linear(256, 10), False

    def forward(self, x):
        global capturing
        u = self.a(x)
        capturing = capturing or self.captures
        return self.b(torch.sigmoid(u))


PLAN = {"version": 1, "device": "cpu", "slab": 1 << 20,
        "values": [{"save": 0, "bytes": 128 * 64 * 4, "how": "swap", "slot": 0, "release": 1, "fetch": 0},
                   {"save": 1, "bytes": 128 * 256 * 4, "how": "drop", "group": 0}],
        "groups": [[["aten::addmm", 0], ["aten::sigmoid", 0]]]}
AT = 3


def learn(plan, how):
    """Returns what was learnt, what each step moved and recomputed, and why the plan ended."""
    global capturing
    torch.manual_seed(1)
    net, learnt, moved, why = Net(), [], [], ""
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    carrier = None if plan is None else carry["Carrier"](torch, plan)
    if carrier is not None:
        carrier.begin()
    for step in range(6):
        optimizer.zero_grad()
        capturing, net.captures = step == AT and how == "around", step == AT and how == "inside"
        loss = net(torch.randn(128, 64)).square().mean()
        capturing = False
        if step == AT and how == "replays":
            CUDAGraph().replay()
        if step == AT and how == "backward":
            CUDAGraph().capture_begin()
            back = carrier and carrier.now.back, carrier and carrier.now.again
        loss.backward()
        if step == AT and how == "backward":
            expect("is moved in a capture", (carrier and carrier.now.back, carrier and carrier.now.again),
                   back)
        optimizer.step()
        learnt.append((loss.item(), [p.grad.sum().item() for p in net.parameters()]))
        if carrier is not None:
            moved.append(carrier.next()[:4])
            if carrier.why:  # as the agent does
                why = carrier.why
                carrier.remove()
                carrier = None
    if carrier is not None:
        carrier.remove()
    return learnt, moved, why


def expect(what, got, want):
    if got != want:
        print("%s: %r, not %r" % (what, got, want))
        sys.exit(1)


want, _, _ = learn(None, "")
got, moved, why = learn(PLAN, "")
expect("without graphs", (got == want, [m[0] > 0 and m[2] > 0 for m in moved], why), (True, [True] * 6, ""))
for how, words, swapped, again in (
    ("around", "captures a CUDA graph", False, False),
    ("inside", "captures a CUDA graph", True, False),
    ("backward", "captures a CUDA graph", True, True),
    ("replays", "replays CUDA graphs", True, True),
):
    got, moved, why = learn(PLAN, how)
    expect(how + ": learns the same", got, want)
    expect(how + ": steps under it", len(moved), AT + 1)
    expect(how + ": why", words in why, True)
    expect(how + ": leaves, runs again", (moved[AT][0] > 0, moved[AT][2] > 0), (swapped, again))
    expect(how + ": torch's own functions", (CUDAGraph.replay, CUDAGraph.capture_begin), own)
expect("replays and captures", (CUDAGraph.replays, CUDAGraph.captures), (1, 1))
print("a plan ends where graphs begin")
