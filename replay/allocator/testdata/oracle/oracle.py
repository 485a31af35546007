"""Runs programs on the real CUDA caching allocator of PyTorch and logs what it does.

It reads JSON from standard input, one program a line, as the program's lines in the language of this
package's scripts. The first line has the settings,

    allocator caching [conf=SETTINGS] [fraction=SHARE] [memory=BYTES]

and the others are malloc NAME SIZE [stream=N] [pool=A,B], free NAME, record NAME STREAM, sync STREAM,
empty_cache, fraction SHARE and use_pool A,B, which makes a pool.

It writes a line with the version of torch, then one line for each program: the device's free and total bytes
at the start; for each statement its segment events, the block's place, and the totals after it; and at the
end the segments with their blocks.

PyTorch reads the allocator's settings once per process, and some of its state outlives empty_cache. So every
program runs in a process of its own, forked before CUDA is initialised: importing torch takes seconds, a fork
milliseconds.

Streams are numbered in the order of their handles; 0 is the default stream. An event is not done until
`sync`, or something else, waits for its stream. That needs the stand-in GPU in its late order, with polls
that never run out.
"""

import contextlib
import json
import os
import sys

import torch

STREAMS = 4
SEGMENT_ACTIONS = ("segment_alloc", "segment_free", "segment_map", "segment_unmap")


def size_of(text):
    unit = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30}.get(text[-1], 1)
    return int(text.rstrip("kmg")) * unit


def parse(line):
    """Returns a statement's words and its options."""
    words, options = [], {}
    for word in line.split():
        key, equals, value = word.partition("=")
        if equals:
            options[key] = value
        else:
            words.append(word)
    return words, options


class Runner:
    def __init__(self, fraction):
        torch.cuda.init()
        self.free_bytes, self.total_bytes = torch.cuda.mem_get_info()
        others = sorted((torch.cuda.Stream() for _ in range(STREAMS - 1)), key=lambda s: s.cuda_stream)
        self.streams = [torch.cuda.default_stream(), *others]
        self.numbers = {s.cuda_stream: i for i, s in enumerate(self.streams)}
        if fraction:
            self.fraction(fraction)
        self.tensors, self.pools = {}, {}
        torch.cuda.memory._record_memory_history(context=None, max_entries=1 << 30)

    def malloc(self, name, size, stream="0", pool=""):
        scope = torch.cuda.use_mem_pool(self.pools[pool]) if pool else contextlib.nullcontext()
        with torch.cuda.stream(self.streams[int(stream)]), scope:
            self.tensors[name] = torch.empty(size_of(size), dtype=torch.uint8, device="cuda")

    def free(self, name):
        self.tensors.pop(name, None)  # its malloc may have failed

    def record(self, name, stream):
        if name in self.tensors:
            self.tensors[name].record_stream(self.streams[int(stream)])

    def sync(self, stream):
        self.streams[int(stream)].synchronize()

    def empty_cache(self):
        torch.cuda.empty_cache()

    def fraction(self, share):
        torch.cuda.set_per_process_memory_fraction(float(share))

    def use_pool(self, name):
        self.pools[name] = torch.cuda.MemPool()
        if "%d,%d" % self.pools[name].id != name:
            raise ValueError(f"pool {name} is {self.pools[name].id}")

    def run(self, lines):
        totals, stopped = [], ""
        statements = [parse(line) for line in lines]
        for words, options in statements:
            try:
                getattr(self, words[0])(*words[1:], **options)
            except torch.cuda.OutOfMemoryError:
                pass
            except Exception as e:
                stopped = str(e).splitlines()[0]
                break
            s = torch._C._cuda_memoryStats(0)
            current = [s[key]["all"]["current"]
                       for key in ("requested_bytes", "allocated_bytes", "active_bytes", "reserved_bytes")]
            driver = s["num_device_alloc"] + s["num_device_free"]
            totals.append((driver, [*current, s["num_alloc_retries"], s["num_ooms"]]))
        snapshot = torch.cuda.memory._snapshot()
        trace = iter([e for e in snapshot["device_traces"][0]
                      if e["action"] in (*SEGMENT_ACTIONS, "alloc", "oom")])
        answers, seen = [], 0
        for (words, _), (driver, current) in zip(statements, totals):
            events, addr = [], 0
            for seen in range(seen, driver):
                e = next(trace)
                if e["action"] not in SEGMENT_ACTIONS:
                    raise ValueError(f"{words}: {e['action']} comes before {driver - seen} segment events")
                events.append({"action": e["action"], "addr": e["addr"], "size": e["size"],
                               "stream": self.numbers[e["stream"]]})
            seen = driver
            if words[0] == "malloc":
                addr = next(trace).get("addr", 0)
            answers.append({"events": events, "addr": addr, "totals": current})
        segments = [
            {"addr": s["address"], "size": s["total_size"], "stream": self.numbers[s["stream"]],
             "blocks": [{"size": b["size"], "state": b["state"]} for b in s["blocks"]]}
            for s in snapshot["segments"]
        ]
        return {"free": self.free_bytes, "total": self.total_bytes, "answers": answers, "stopped": stopped,
                "segments": segments}


def answer(lines):
    """Runs a program in a process of its own and returns the line that it writes."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(read)
            _, options = parse(lines[0])
            os.environ["PYTORCH_CUDA_ALLOC_CONF"] = options.get("conf", "")
            os.environ["STANDIN_MEMORY"] = str(size_of(options["memory"]))
            line = json.dumps(Runner(options.get("fraction")).run(lines[1:]))
        except BaseException as e:  # whatever happens, the parent has to hear of it
            line = json.dumps({"failed": f"{type(e).__name__}: {e}"})
        with os.fdopen(write, "w") as f:
            f.write(line)
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as f:
        line = f.read()
    _, status = os.waitpid(pid, 0)
    return line if line else json.dumps({"died": f"the process ended with status {status}"})


def main():
    with os.fdopen(os.dup(1), "w") as results:
        os.dup2(2, 1)  # what libraries print must not end up among the results
        print(json.dumps({"torch": torch.__version__}), file=results, flush=True)
        for line in sys.stdin:
            print(answer(json.loads(line)), file=results, flush=True)


main()
