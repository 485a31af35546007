"""Train under a plan while the memory of the GPU runs out in the backward pass, and compare the gradients.

usage: rescued.py AGENT.PY

Without the plan the pass would fit. What is dropped cannot run again at first, and what was swapped cannot
return: other saved tensors have to move to the host before. Prints what the plan ended with.
"""
import sys

import torch

with open(sys.argv[1]) as f:
    agent = {"__name__": "agent"}
    exec(compile(f.read(), sys.argv[1], "exec"), agent)

SIZE, DEVICE = 3 << 20, "cuda:0"  # each tensor has a segment of its own
KEEPS, LEAVES = 5, 4
TOTAL = torch.cuda.get_device_properties(0).total_memory


class Chain(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.full((SIZE,), 0.3, device=DEVICE))

    def forward(self, x):
        x = x * self.weight
        for _ in range(KEEPS + LEAVES):
            x = torch.sigmoid(x)  # saves its result
        return x


class Limit(torch.autograd.Function):
    """From here on the program gets no more memory than it holds, and a little for gradients."""

    @staticmethod
    def forward(ctx, x):
        return x.sum()

    @staticmethod
    def backward(ctx, grad):
        grads = grad.expand(SIZE).contiguous()
        torch.cuda.empty_cache()
        limit = torch.cuda.memory_reserved() + limits[0] * 4 * SIZE
        torch.cuda.set_per_process_memory_fraction(min(limit / TOTAL, 1.0))
        return grads


def step():
    net.weight.grad = None
    torch.cuda.set_per_process_memory_fraction(1.0)
    Limit.apply(net(x)).backward()
    return net.weight.grad.clone()


def plan(how):
    first = 1 + KEEPS  # save 0 is x
    values = [
        {"save": first + k, "bytes": 4 * SIZE, "how": how, "group": 0, "slot": 4 * SIZE * k,
         "release": first + k, "fetch": -1}
        for k in range(LEAVES)
    ]
    ops = [["aten::sigmoid", KEEPS + k] for k in range(LEAVES)]
    return {"version": 1, "device": DEVICE, "values": values, "groups": [ops] if how == "drop" else [],
            "slab": 4 * SIZE * LEAVES if how == "swap" else 0, "saves": first + LEAVES}


net, x, limits = Chain(), torch.full((SIZE,), 0.1, device=DEVICE), [1 << 10]
want = step()
for how in ("drop", "swap"):
    carrier = agent["Carrier"](torch, plan(how))
    carrier.begin()
    for limits[0] in (1 << 10, 2 if how == "drop" else 0):
        assert torch.equal(step(), want), how
        moved = carrier.next()
        assert moved[5] == 0 and moved[3] == 0, moved
        assert bool(carrier.why) == (limits[0] < 9), carrier.why
    print(how, carrier.why.code, carrier.why.values[-3], "some" if carrier.why.values[-1] > 0 else "nothing")
    carrier.remove()
