"""Check that a description of steps on a GPU accounts for all memory: its peak is the allocator's own, to the
byte.

usage: within.py AGENT.py

Prints the steps' peak, and the memory that ops take for themselves.
"""
import json
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn

with open(sys.argv[1]) as f:
    space = {"__name__": "gmemtop_agent"}
    exec(compile(f.read(), "gmemtop_agent", "exec"), space)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.out = nn.Embedding(500, 256), nn.Linear(256, 500)
        self.mix = nn.TransformerEncoderLayer(256, 4, 512, batch_first=True)

    def forward(self, tokens):
        return self.out(self.mix(self.embed(tokens)))


def requested(which):
    return torch.cuda.memory_stats()["requested_bytes.all." + which]


def describe(step, optimizer, steps):
    """The lines of a window of so many steps, and the most that the allocator held during it."""
    window = space["Ops"](torch, time.perf_counter_ns, time.perf_counter_ns(), space["Addresses"](),
                          [optimizer], fail)
    torch.cuda.reset_peak_memory_stats()
    assert not window.begin()
    for _ in range(steps):
        begin = time.perf_counter_ns()
        step()
        window.steps.append((begin, time.perf_counter_ns()))
    window.look([optimizer])
    window.end()
    peak = requested("peak")
    torch.cuda.synchronize()
    return [json.loads(line) for line in "".join(window.pieces({"epoch_ns": 0})).splitlines()], peak


def fail(error):
    raise error


def peak_of(lines):
    """The most memory in use on the GPU according to the lines."""
    now = peak = 0
    size = {}
    for line in lines[1:]:
        if line["k"] == "alloc" and line["on"] == "cuda:0":
            size[line["id"]] = line["size"]
            now += line["size"]
        elif line["k"] == "free":
            now -= size.pop(line["id"], 0)
        peak = max(peak, now)
    return peak


def main():
    torch.manual_seed(0)
    unused = torch.empty(12345, device="cuda")  # kept, but never touched
    for name in ("tf32", "bf16"):
        net = Net().cuda()
        optimizer = torch.optim.AdamW(net.parameters())
        tokens, kept = torch.randint(500, (8, 64), device="cuda"), {}

        def step():
            optimizer.zero_grad()
            with torch.autocast("cuda", dtype=torch.bfloat16, enabled=name == "bf16"):
                kept["logits"] = logits = net(tokens)  # until the next step replaces it
                loss = F.cross_entropy(logits.float().flatten(0, 1), tokens.flatten())
            loss.backward()
            optimizer.step()

        for _ in range(3):
            step()
        lines, peak = describe(step, optimizer, 1)
        got = peak_of(lines)
        said = lambda code: [x for x in lines[1:] if x["k"] == "alloc"
                             and x.get("says", {}).get("code") == code]
        spaces = sorted({(x["label"], x["size"]) for x in said("workspace")})
        print(name, "peak", peak, "described", got, "own", spaces)
        assert got == peak, "%s: %d bytes are described at the peak, and the allocator held %d" % (
                name, got, peak)
        rest = [x["size"] for x in said("untouched")]
        print(rest)
        assert rest and rest[0] >= unused.untyped_storage().nbytes()
        assert any("mm" in label for label, _ in spaces) or torch.__version__ < "2.12", spaces
        del net, optimizer, step


main()
