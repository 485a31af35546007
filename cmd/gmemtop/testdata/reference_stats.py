#!/usr/bin/env python3
"""The totals of a PyTorch memory snapshot, computed a second time, to hold against `gmemtop stats --json`.

usage: reference_stats.py SNAPSHOT...

Written from the definitions in docs/architecture.md alone and apart from the Go code: no shared tables, no shared order of work,
the simplest loop that can be seen to be right. It reads pickles (with every global refused) and JSON, and prints one JSON object
per file: {"devices": [{"device": n, "device_kind": "gpu", ...}]} with the keys that it can compute. Standard library only.

Definitions used:
  start_allocated   unmatched free_requested + final active_allocated blocks without an open alloc in the trace (requested bytes)
  start_active      start_allocated + unmatched free_completed whose request is not in the trace + final pending-free blocks without
                    an open alloc
  start_reserved    final segments - (segment_alloc + segment_map) + (segment_free + segment_unmap)
  allocated falls at free_requested, active at free_completed; a peak is the maximum, the first time it is reached; where the start
  is the maximum, or there are no events, the peak has no event and no time
  end_*             the final segments' rounded bytes; *_requested the last value of the series
  fragmentation     at the end: internal = rounded - requested of active blocks; stranded = inactive bytes in segments that hold an
                    active block; cached = segments wholly inactive; active_requested + internal + stranded + cached = reserved
"""
import gzip
import io
import json
import pickle
import sys


class NoGlobals(pickle.Unpickler):
    """A snapshot holds plain values only: whatever names a global is no snapshot."""

    def find_class(self, module, name):
        raise pickle.UnpicklingError(f"refused: {module}.{name}")


def read(path):
    with open(path, "rb") as f:
        data = f.read()
    if data[:2] == b"\x1f\x8b":
        data = gzip.decompress(data)
    try:
        return json.loads(data)
    except ValueError:
        return NoGlobals(io.BytesIO(data), encoding="utf-8").load()


def blocks_of(segment):
    """Yields (address, rounded, requested, state) of a segment's blocks, of all versions of the format."""
    address = segment["address"]
    for block in segment["blocks"]:
        address = block.get("address", address)
        size = block["size"]
        requested = block.get("requested_size")
        if requested is None:
            history = block.get("history") or []
            requested = history[0].get("real_size", size) if history else size
        state = block["state"]
        if state == "active_awaiting_free":
            state = "active_pending_free"
        if state == "inactive":
            requested = 0
        yield address, size, requested, state
        address += size


UNSIGNED = (1 << 64) - 1


def stats(device, kind, trace, segments, origin):
    """The figures of one device."""
    size_of = {}  # open allocations: address -> requested bytes
    asked = {}  # freed by the user, not completed: address -> requested bytes
    start_allocated = start_active = 0
    allocated = active = 0  # relative to the start
    peak_allocated = peak_active = (0, None)
    reserved_change = 0
    reserved_peak = (0, None)
    allocations = ooms = 0
    streams = set()
    for index, event in enumerate(trace):
        action, size = event["action"], event.get("size", 0)
        address = event.get("addr", 0) & UNSIGNED
        streams.add(event.get("stream", 0))
        if action == "alloc":
            allocations += 1
            size_of[address] = size
            allocated += size
            active += size
        elif action == "free_requested":
            if address in size_of:
                size = size_of.pop(address)
            else:
                start_allocated += size
                start_active += size
            asked[address] = size
            allocated -= size
        elif action == "free_completed":
            if address in asked:
                size = asked.pop(address)
            else:
                start_active += size
            active -= size
        elif action in ("segment_alloc", "segment_map"):
            reserved_change += size
        elif action in ("segment_free", "segment_unmap"):
            reserved_change -= size
        elif action == "oom":
            ooms += 1
        if allocated > peak_allocated[0]:
            peak_allocated = (allocated, index)
        if active > peak_active[0]:
            peak_active = (active, index)
        if reserved_change > reserved_peak[0]:
            reserved_peak = (reserved_change, index)

    end_allocated = end_active = end_reserved = 0
    internal = stranded = cached = pending = active_requested = largest_free = 0
    for segment in segments:
        end_reserved += segment["total_size"]
        streams.add(segment.get("stream", 0))
        blocks = list(blocks_of(segment))
        holds_active = any(state != "inactive" for _, _, _, state in blocks)
        if not holds_active:
            cached += segment["total_size"]
        for address, rounded, requested, state in blocks:
            address &= UNSIGNED
            if state == "inactive":
                largest_free = max(largest_free, rounded)
                if holds_active:
                    stranded += rounded
                continue
            end_active += rounded
            active_requested += requested
            internal += rounded - requested
            if state == "active_allocated":
                end_allocated += rounded
                if address not in size_of:
                    start_allocated += requested
                    start_active += requested
            else:
                pending += rounded
                if address not in asked:
                    start_active += requested
    start_reserved = end_reserved - reserved_change
    peak_event = peak_allocated[1]
    peak_time = None
    if peak_event is not None and "time_us" in trace[peak_event]:
        peak_time = (trace[peak_event]["time_us"] - origin) * 1000
    return {
        "device": device, "device_kind": kind, "events": len(trace), "allocations": allocations, "ooms": ooms,
        "streams": len(streams), "segments": len(segments),
        "start_allocated_bytes": start_allocated, "start_active_bytes": start_active, "start_reserved_bytes": start_reserved,
        "end_allocated_bytes": end_allocated, "end_active_bytes": end_active, "end_reserved_bytes": end_reserved,
        "end_allocated_requested_bytes": start_allocated + allocated, "end_active_requested_bytes": start_active + active,
        "peak_allocated_bytes": start_allocated + peak_allocated[0], "peak_active_bytes": start_active + peak_active[0],
        "peak_reserved_bytes": start_reserved + reserved_peak[0],
        "peak_event": peak_event, "peak_active_event": peak_active[1], "peak_reserved_event": reserved_peak[1], "peak_time_ns": peak_time,
        "law_difference": {
            "allocated_bytes": start_allocated + allocated - sum(r for s in segments for _, _, r, st in blocks_of(s) if st == "active_allocated"),
            "active_bytes": start_active + active - active_requested, "reserved_bytes": 0,
        },
        "fragmentation_at_end": {
            "at": "end", "active_requested_bytes": active_requested, "internal_bytes": internal, "stranded_bytes": stranded,
            "cached_bytes": cached, "pending_free_bytes": pending, "largest_free_bytes": largest_free, "reserved_bytes": end_reserved,
        },
    }


def report(path):
    snapshot = read(path)
    if isinstance(snapshot, list):
        snapshot = {"segments": snapshot}
    segments = snapshot.get("segments") or []
    traces = snapshot.get("device_traces") or []
    host_segments, host_traces = snapshot.get("host_segments") or [], snapshot.get("host_traces") or []
    first = [t[0]["time_us"] for t in list(traces) + list(host_traces) if t and "time_us" in t[0]]
    origin = min(first, default=0)
    devices = []
    for d in sorted({s.get("device", 0) for s in segments} | {i for i, t in enumerate(traces) if t}):
        trace = traces[d] if d < len(traces) else []
        devices.append(stats(d, "gpu", trace, [s for s in segments if s.get("device", 0) == d], origin))
    return {"path": path, "devices": devices, "has_host": bool(host_segments or host_traces)}


for name in sys.argv[1:]:
    print(json.dumps(report(name)))
