"""How much memory this host has left, and how many processes of the job share it."""

from __future__ import annotations

import os

# of the host memory that is available: more than that is not asked for, or the system might end a process
HOST_SHARE = 0.9

# Where control groups of version 2 and 1 are, and what they call their limit, what is used, and the part of
# that which the kernel gives back when it has to.
GROUPS = (
    ("/sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"),
    ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
)


def host_room(root: str = "") -> int | None:
    """The bytes that may be had on this host, by the system's word and by that of the process's control
    group and all above it; None where nobody says."""

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
        for n in range(len(parts) + 1):  # in a container only some of them may be there
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
