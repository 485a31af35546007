"""Print a snapshot's figures as JSON, read by Python's own decoder with all globals refused. Usage:
reference.py FILE"""
import collections
import json
import pickle
import sys


class Plain(pickle.Unpickler):
    def find_class(self, module, name):
        raise pickle.UnpicklingError(f"global {module}.{name}")

    def persistent_load(self, pid):
        raise pickle.UnpicklingError("persistent id")


with open(sys.argv[1], "rb") as f:
    snapshot = Plain(f).load()
if isinstance(snapshot, list):
    snapshot = {"segments": snapshot}
traces = snapshot.get("device_traces", [])
events = [e for t in traces for e in t]
segments = snapshot["segments"]
blocks = [b for s in segments for b in s["blocks"]]
frames = lambda e: tuple((f["filename"], f["line"], f["name"]) for f in e.get("frames", ()))
stacks = [frames(e) for e in events]
print(json.dumps({
    "events": [len(t) for t in traces],
    "actions": collections.Counter(e["action"] for e in events),
    "bytes": sum(e["size"] for e in events),
    "addresses": sum(e.get("addr", e.get("device_free", 0)) for e in events) % 2**63,
    "first_us": min((e["time_us"] for e in events if "time_us" in e), default=0),
    "micros": sum(e.get("time_us", 0) for e in events) % 2**63,
    "streams": len({e["stream"] for e in events} | {s["stream"] for s in segments} | {0}),
    "with_stack": sum(1 for s in stacks if s),
    "frames": sum(len(s) for s in stacks),
    "stacks": len({s for s in stacks if s}),
    "lines": sum(f[1] for s in stacks for f in s),
    "text": sum(len(f[0].encode()) + len(f[2].encode()) for s in stacks for f in s),
    "segments": len(segments),
    "reserved": sum(s["total_size"] for s in segments),
    "active": sum(s["active_size"] for s in segments),
    "blocks": len(blocks),
    "block_bytes": sum(b["size"] for b in blocks),
    "requested": sum(b.get("requested_size", 0) for b in blocks),
    "states": collections.Counter(b["state"] for b in blocks),
    "annotations": len(snapshot.get("external_annotations", ())),
    "settings": len(snapshot.get("allocator_settings", ())),
}))
