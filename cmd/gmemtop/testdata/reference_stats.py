#!/usr/bin/env python3
"""The totals of a PyTorch memory snapshot, computed a second time, to hold against `gmemtop stats --json`.

usage: reference_stats.py SNAPSHOT...

Written from the definitions below and apart from the Go code: it shares no tables and no order of work with
it, and uses the simplest loops that can be seen to be right. It reads pickles (and refuses every global in
them) and JSON, and prints one JSON object for each file, {"devices": [{"device": n, "device_kind": "gpu",
...}]}, with the keys that it can compute. It needs only the standard library.

Definitions:
  a block's size    its size in the final state if it is there; else the request, rounded as PyTorch's
                    allocator rounds it, plus the rest of its hole if the allocator leaves that to the block
  start_*           what was there before the first event: blocks freed without an alloc in the trace, and
                    blocks of the final state that no event explains
  start_reserved    final segments - (segment_alloc + segment_map) + (segment_free + segment_unmap)
  allocated falls at free_requested, active at free_completed
  a peak            the maximum, when it is first reached; if the start is the maximum, or there are no
                    events, the peak has no event and no time
  *_bytes           counts sizes; *_requested_bytes counts what was requested; each peak is the maximum of its
                    own series
  end_*             the figures of the final segments; *_requested is the last value of the series
  fragmentation     at the end: internal = rounded - requested of active blocks; stranded = inactive bytes in
                    segments that hold an active block; cached = segments with none;
                    active_requested + internal + stranded + cached = reserved
"""
import bisect
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


def round_up(size, settings):
    """The allocator's round_size: multiples of 512 bytes, or steps between powers of two if divisions are
    set."""
    if size < 512:
        return 512
    divisions = settings.get("roundup_power2_divisions") or {}
    floor = 1 << (size.bit_length() - 1)
    steps = divisions.get(str(min(max(floor >> 20, 1), 32768)), 0)
    if steps > 1 and size > 512 * steps:
        step = floor // steps
        return size if size == floor else -(-size // step) * step
    return -(-size // 512) * 512


class Neighbours:
    """What lies behind an address: active blocks and the ends of segments, by plain sorted lists."""

    def __init__(self, trace, segments):
        self.segments = {s["address"] & UNSIGNED: s["total_size"] for s in segments}
        for event in reversed(trace):
            self.take({"segment_alloc": "segment_free", "segment_free": "segment_alloc"}.get(event["action"]),
                      event)
        self.blocks = []

    def take(self, action, event):
        if action == "segment_alloc":
            self.segments[event["addr"] & UNSIGNED] = event["size"]
        elif action == "segment_free":
            self.segments.pop(event["addr"] & UNSIGNED, None)

    def put(self, address):
        bisect.insort(self.blocks, address)

    def remove(self, address):
        at = bisect.bisect_left(self.blocks, address)
        if at < len(self.blocks) and self.blocks[at] == address:
            del self.blocks[at]

    def size(self, address, rounded, settings):
        """A large block keeps the rest of its hole unless that is larger than 1 MiB. One of max_split_size
        is a whole segment."""
        if rounded <= 1 << 20:
            return rounded
        home = next(((a, n) for a, n in self.segments.items() if a <= address < a + n), None)
        if home is None:
            return rounded
        if 0 < settings.get("max_split_size", -1) <= rounded:
            return home[1]
        limit = home[0] + home[1]
        at = bisect.bisect_left(self.blocks, address + rounded)
        if at < len(self.blocks):
            limit = min(limit, self.blocks[at])
        return limit - address if 0 <= limit - address - rounded <= 1 << 20 else rounded


def lifetimes(trace, segments):
    """Blocks as dicts: start, freed and ended are event indices, -1 before the trace and None after it; final
    is the size in the final state."""
    held, blocks = {}, []
    for index, event in enumerate(trace):
        action, size, address = event["action"], event.get("size", 0), event.get("addr", 0) & UNSIGNED
        if action == "alloc":
            held[address] = {"start": index, "freed": None, "ended": None, "address": address,
                             "requested": size, "final": None}
            blocks.append(held[address])
        elif action in ("free_requested", "free_completed"):
            if address not in held:
                held[address] = {"start": -1, "freed": None, "ended": None, "address": address,
                                 "requested": size, "final": None}
                blocks.append(held[address])
                if action == "free_completed":
                    held[address]["freed"] = -1
            if action == "free_requested":
                held[address]["freed"] = index
            else:
                held.pop(address)["ended"] = index
    for segment in segments:
        for address, rounded, requested, state in blocks_of(segment):
            address &= UNSIGNED
            if state == "inactive":
                continue
            if address not in held:
                freed = None if state == "active_allocated" else -1
                held[address] = {"start": -1, "freed": freed, "ended": None, "address": address,
                                 "requested": requested, "final": None}
                blocks.append(held[address])
            held[address]["final"] = rounded
    return blocks


def measure(blocks, trace, segments, settings, host):
    """Gives each block its size: that of the final state, else by the allocator's rules."""
    mapped = (any(e["action"] in ("segment_map", "segment_unmap") for e in trace)
              or any(s.get("is_expandable") for s in segments))
    around = None if mapped or host or not trace else Neighbours(trace, segments)

    def give(block):
        rounded = block["requested"] if host else round_up(block["requested"], settings)
        size = around.size(block["address"], rounded, settings) if around else rounded
        block["size"] = size if block["final"] is None else block["final"]

    begins, ends = {}, {}
    for block in blocks:
        begins.setdefault(block["start"], []).append(block)
        ends.setdefault(block["ended"], []).append(block)
    large = lambda block: round_up(block["requested"], settings) > 1 << 20
    for block in begins.get(-1, []):
        if around and large(block):
            around.put(block["address"])
    for block in begins.get(-1, []):
        give(block)
    for index, event in enumerate(trace):
        if around:
            around.take(event["action"], event)
            for block in ends.get(index, []):
                around.remove(block["address"])
        for block in begins.get(index, []):
            give(block)
            if around and large(block):
                around.put(block["address"])


def series(blocks, events, size, end):
    """The start of a series, its peak with the event, and its last value. Blocks count from their start to
    `end`."""
    steps = [0] * events
    start = 0
    for block in blocks:
        if block[end] == -1:
            continue
        if block["start"] == -1:
            start += block[size]
        else:
            steps[block["start"]] += block[size]
        if block[end] is not None:
            steps[block[end]] -= block[size]
    value, peak, at = start, start, None
    for index, step in enumerate(steps):
        value += step
        if value > peak:
            peak, at = value, index
    return start, peak, at, value


def stats(device, kind, trace, segments, origin, settings):
    """The figures of one device."""
    host = kind == "host"
    blocks = lifetimes(trace, segments)
    measure(blocks, trace, segments, settings, host)
    reserved_change, reserved_peak = 0, (0, None)
    ooms, allocations, streams = 0, 0, set()
    for index, event in enumerate(trace):
        action, size = event["action"], event.get("size", 0)
        streams.add(event.get("stream", 0))
        allocations += action == "alloc"
        ooms += action == "oom"
        if action in ("segment_alloc", "segment_map"):
            reserved_change += size
        elif action in ("segment_free", "segment_unmap"):
            reserved_change -= size
        if reserved_change > reserved_peak[0]:
            reserved_peak = (reserved_change, index)

    end_allocated = end_active = end_reserved = 0
    internal = stranded = cached = pending = active_requested = largest_free = 0
    for segment in segments:
        end_reserved += segment["total_size"]
        streams.add(segment.get("stream", 0))
        inside = list(blocks_of(segment))
        holds_active = any(state != "inactive" for _, _, _, state in inside)
        if not holds_active:
            cached += segment["total_size"]
        for _, rounded, requested, state in inside:
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
            else:
                pending += rounded
    start_reserved = end_reserved - reserved_change
    allocated = series(blocks, len(trace), "size", "freed")
    active = series(blocks, len(trace), "size", "ended")
    asked = series(blocks, len(trace), "requested", "freed")
    used = series(blocks, len(trace), "requested", "ended")
    peak_event = allocated[2]
    peak_time = None
    if peak_event is not None and "time_us" in trace[peak_event]:
        peak_time = (trace[peak_event]["time_us"] - origin) * 1000
    known = lambda figure: None if host else figure  # of pinned memory, PyTorch records what was given only
    return {
        "device": device, "device_kind": kind, "events": len(trace), "allocations": allocations, "ooms": ooms,
        "streams": len(streams), "segments": len(segments),
        "start_allocated_bytes": allocated[0], "start_active_bytes": active[0],
        "start_reserved_bytes": start_reserved,
        "start_allocated_requested_bytes": known(asked[0]), "start_active_requested_bytes": known(used[0]),
        "end_allocated_bytes": end_allocated, "end_active_bytes": end_active,
        "end_reserved_bytes": end_reserved,
        "end_allocated_requested_bytes": known(asked[3]), "end_active_requested_bytes": known(used[3]),
        "peak_allocated_bytes": allocated[1], "peak_active_bytes": active[1],
        "peak_allocated_requested_bytes": known(asked[1]), "peak_active_requested_bytes": known(used[1]),
        "peak_reserved_bytes": start_reserved + reserved_peak[0],
        "peak_event": peak_event, "peak_active_event": active[2], "peak_reserved_event": reserved_peak[1],
        "peak_time_ns": peak_time,
        "law_difference": {
            "allocated_bytes": allocated[3] - end_allocated, "active_bytes": active[3] - end_active,
            "reserved_bytes": 0,
            "active_requested_bytes": used[3] - active_requested,
        },
        "fragmentation_at_end": {
            "at": "end", "active_requested_bytes": active_requested, "internal_bytes": internal,
            "stranded_bytes": stranded, "cached_bytes": cached, "pending_free_bytes": pending,
            "largest_free_bytes": largest_free, "reserved_bytes": end_reserved,
        },
    }


def report(path):
    snapshot = read(path)
    if isinstance(snapshot, list):
        snapshot = {"segments": snapshot}
    segments = snapshot.get("segments") or []
    traces = snapshot.get("device_traces") or []
    host_segments, host_traces = snapshot.get("host_segments") or [], snapshot.get("host_traces") or []
    if host_traces and isinstance(host_traces[0], dict):  # as torch writes them: one list, no device's
        host_traces = [host_traces]
    first = [t[0]["time_us"] for t in list(traces) + list(host_traces) if t and "time_us" in t[0]]
    origin = min(first, default=0)
    settings = snapshot.get("allocator_settings") or {}
    devices = []
    for d in sorted({s.get("device", 0) for s in segments} | {i for i, t in enumerate(traces) if t}):
        trace = traces[d] if d < len(traces) else []
        devices.append(stats(d, "gpu", trace, [s for s in segments if s.get("device", 0) == d],
                             origin, settings))
    if host_segments or host_traces:
        devices.append(stats(0, "host", host_traces[0] if host_traces else [], host_segments,
                             origin, settings))
    return {"path": path, "devices": devices, "has_host": bool(host_segments or host_traces)}


for name in sys.argv[1:]:
    print(json.dumps(report(name)))
