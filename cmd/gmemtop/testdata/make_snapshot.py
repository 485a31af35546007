"""Write a large memory snapshot: training steps of 48 layers with temporaries, on one stream.

usage: make_snapshot.py EVENTS OUT.pickle

Its shape is that of PyTorch's snapshots (stacks are shared objects, parameters live throughout, the backward
pass frees activations); its numbers are made up. The benchmark against pickle.load runs on it.
"""
import pickle
import random
import sys

wanted, out = int(sys.argv[1]), sys.argv[2]
rng = random.Random(11)
LAYERS, SCRATCH = 48, 6
frames = [{"filename": f"/env/site-packages/torch/m{i % 70}.py", "line": i, "name": f"call_{i % 190}"}
          for i in range(3500)]
stacks = [[rng.choice(frames) for _ in range(rng.randrange(10, 55))] for _ in range(2200)]
BASE = 0x7F20_0000_0000
events, holes, notes = [], {}, []
top, now = BASE, 1_760_000_000_000_000


def event(action, addr, size, stack):
    global now
    now += rng.randrange(1, 8)
    events.append({"action": action, "addr": addr, "size": size, "stream": 0, "time_us": now,
                   "compile_context": "",
                   "user_metadata": "", "frames": stack})


def take(size, stack):
    global top
    room = (size + 511) & ~511
    if holes.get(room):
        addr = holes[room].pop()
    else:
        addr, top = top, top + room
    event("alloc", addr, size, stack)
    return addr, size, stack


def give(block):
    addr, size, stack = block
    event("free_requested", addr, size, stack)
    event("free_completed", addr, size, stack)
    holes.setdefault((size + 511) & ~511, []).append(addr)


wide = [rng.randrange(1 << 20, 1 << 27) for _ in range(LAYERS)]
narrow = [rng.randrange(512, 1 << 25) for _ in range(LAYERS * SCRATCH)]
kept = [take(rng.randrange(1 << 16, 1 << 24), stacks[i]) for i in range(2 * LAYERS)]
step = 0
while len(events) < wanted:
    notes.append({"name": f"ProfilerStep#{step}", "stage": "START", "device": 0, "time_us": now})
    saved = []
    for layer in range(LAYERS):
        for t in range(SCRATCH):
            give(take(narrow[layer * SCRATCH + t], stacks[(layer * 29 + t) % len(stacks)]))
        saved.append(take(wide[layer], stacks[layer * 19 % len(stacks)]))
    for layer in reversed(range(LAYERS)):
        gradient = take(wide[layer], stacks[(layer * 11 + 7) % len(stacks)])
        give(saved.pop())
        give(gradient)
    notes.append({"name": f"ProfilerStep#{step}", "stage": "END", "device": 0, "time_us": now})
    step += 1

blocks, cursor = [], BASE
for addr, size, stack in sorted(kept):
    if addr > cursor:
        blocks.append({"address": cursor, "size": addr - cursor, "requested_size": 0,
                       "state": "inactive", "frames": []})
    cursor = addr + ((size + 511) & ~511)
    blocks.append({"address": addr, "size": cursor - addr, "requested_size": size,
                   "state": "active_allocated", "frames": stack})
if cursor < top:
    blocks.append({"address": cursor, "size": top - cursor, "requested_size": 0,
                   "state": "inactive", "frames": []})
active = sum(b["size"] for b in blocks if b["state"] != "inactive")
snapshot = {
    "segments": [{"device": 0, "address": BASE, "total_size": top - BASE, "allocated_size": active,
                  "active_size": active,
                  "requested_size": sum(s for _, s, _ in kept), "stream": 0, "segment_type": "large",
                  "segment_pool_id": (0, 0),
                  "is_expandable": False, "frames": stacks[0], "blocks": blocks}],
    "device_traces": [events],
    "allocator_settings": {"expandable_segments": False, "roundup_power2_divisions": {"1": 0}},
    "external_annotations": notes,
}
with open(out, "wb") as f:
    pickle.dump(snapshot, f, protocol=4)
