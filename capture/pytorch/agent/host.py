"""How much memory this host has left, and how many processes of the job share it."""

from __future__ import annotations

import os

# the share of the available host memory to ask for: beyond it, the system might kill a process
HOST_SHARE = 0.9

# For cgroups v2 and v1: where they are mounted, and what they call the limit, the usage, and the part of the
# usage that the kernel can reclaim.
GROUPS = (
    ("/sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"),
    ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
)


def host_room(root: str = "") -> int | None:
    """The bytes that this process can still get on this host, by the system's figures and by the limits of
    its cgroup and all cgroups above; None if neither says."""

    def text(path: str) -> str:
        with open(root + path) as f:
            return f.read()

    rooms, groups = [], []
    try:
        rooms += [
            int(line.split()[1]) << 10
            for line in text("/proc/meminfo").splitlines()
            if line.startswith("MemAvailable:")
        ]
        groups += [line.split(":", 2)[1:] for line in text("/proc/self/cgroup").splitlines()]
    except (OSError, ValueError, IndexError):
        pass
    for kind, path in groups or [["", "/"]]:
        if kind and "memory" not in kind.split(","):
            continue
        mount, limit, used, idle = GROUPS[1 if kind else 0]
        parts = [part for part in path.split("/") if part]
        for n in range(len(parts) + 1):  # in a container, some of them may be missing
            group = "/".join([mount] + parts[:n]) + "/"
            try:
                stat = dict(line.split() for line in text(group + "memory.stat").splitlines())
                rooms.append(int(text(group + limit)) - int(text(group + used)) + int(stat.get(idle, 0)))
            except (OSError, ValueError):  # "max" is no limit
                pass
    return min(rooms) if rooms else None


def local_ranks() -> int:
    """How many processes of the job share this host's memory."""
    ranks = os.environ.get("LOCAL_WORLD_SIZE", "")
    return max(int(ranks), 1) if ranks.isdigit() else 1
