"""Check how much memory the agent thinks the host has room for, and what it refuses.

usage: room.py AGENT.PY FOLDER

The file systems of some made-up hosts are written to FOLDER.
"""
import os
import sys

import torch
import torch.utils._python_dispatch

with open(sys.argv[1]) as f:
    agent = {"__name__": "agent"}
    exec(compile(f.read(), sys.argv[1], "exec"), agent)
GIB = 1 << 30


def host(name, available, groups, files):
    """The room on a host with so many GiB and these control groups."""
    root = os.path.join(sys.argv[2], name)
    memory = "MemTotal: 99999999 kB\nMemAvailable: %d kB\n" % (available * GIB >> 10)
    for path, text in {**files, "proc/meminfo": memory, "proc/self/cgroup": groups}.items():
        os.makedirs(os.path.dirname(os.path.join(root, path)), exist_ok=True)
        with open(os.path.join(root, path), "w") as f:
            f.write(text)
    return agent["host_room"](root)


def group(path, limit, used, idle, names=("memory.max", "memory.current", "inactive_file")):
    """A control group's files, in GiB."""
    return {path + "/" + names[0]: "%s\n" % (limit if limit == "max" else limit * GIB),
            path + "/" + names[1]: "%d\n" % (used * GIB),
            path + "/memory.stat": "anon 1\n%s %d\n" % (names[2], idle * GIB)}


def expect(what, got, want):
    if got != want:
        print("%s: %r, not %r" % (what, got, want))
        sys.exit(1)


first = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
expect("no limit", host("none", 64, "0::/\n", group("sys/fs/cgroup", "max", 1, 0)), 64 * GIB)
expect("a container's own", host("own", 64, "0::/\n", group("sys/fs/cgroup", 20, 15, 5)), 10 * GIB)
expect("the group of a job",
       host("job", 64, "0::/slurm/job_7/step_0\n", dict(group("sys/fs/cgroup/slurm/job_7", 12, 4, 0),
               **group("sys/fs/cgroup/slurm/job_7/step_0", "max", 4, 0))), 8 * GIB)
expect("a group that is not there",
       host("gone", 64, "0::/docker/abc\n", group("sys/fs/cgroup", 9, 4, 0)), 5 * GIB)
expect("version 1", host("first", 64, "9:cpu,cpuacct:/a\n8:memory:/a/b\n0::/a\n",
                         group("sys/fs/cgroup/memory/a/b", 7, 5, 1, first)), 3 * GIB)
expect("less than the limit", host("short", 2, "0::/\n", group("sys/fs/cgroup", 20, 1, 0)), 2 * GIB)
expect("nobody says", agent["host_room"](os.path.join(sys.argv[2], "nowhere")), None)
expect("this host", (agent["host_room"]() or 0) > 0, True)

# Each rank of the host pins a slab.
manager = agent["Agent"]("", False).manager
manager.optimizers.device = lambda: torch.device("cpu")
plan, rooms = {"version": 1, "device": "cpu", "slab": 2 * GIB, "values": [], "groups": []}, [10 * GIB]
agent["host_room"] = lambda: rooms[0]
expect("one rank", manager._refusal(plan), "")
os.environ["LOCAL_WORLD_SIZE"] = "4"
expect("four ranks in nine tenths", manager._refusal(plan), "")
os.environ["LOCAL_WORLD_SIZE"] = "5"
expect("five", manager._refusal(plan), "host full ranks: 10240, 5, 10240")
os.environ["LOCAL_WORLD_SIZE"], manager.before, rooms[0] = "4", 10 * GIB, 4 * GIB
expect("three have theirs", manager._refusal(plan), "")
manager.before = 8 * GIB
expect("there was too little before", manager._refusal(plan).startswith("host full ranks: 8192, 4, "), True)

# We record ops with a dispatch mode: a mode of the program's own around its steps would see ours.
os.environ["LOCAL_WORLD_SIZE"], manager.before, rooms[0] = "1", None, 10 * GIB
with torch.utils._python_dispatch.TorchDispatchMode():
    again, alone = manager._refusal(dict(plan, groups=[[["aten::relu", 0]]])), manager._refusal(plan)
expect("a mode of the program's own", (again, alone), ("mode around steps", ""))
manager.optimizers.device = lambda: torch.device("meta")
expect("another device", manager._refusal(plan), "device without plans: meta")
manager.optimizers.device = lambda: torch.device("cpu")

# A plan must not begin while a CUDA graph is captured.
asked, capturing = [], [True]
manager.wishes.plans.append({"order": 0, "id": 3, "plan": plan, "keep": False})
manager._on = lambda number, plan: asked.append(number) or ""
torch.cuda.is_initialized = lambda: True
torch.cuda.is_current_stream_capturing = lambda: capturing[0]
manager.manage()
expect("while a graph is captured", (asked, len(manager.wishes.plans)), ([], 1))
capturing[0], rooms[0] = False, 10 * GIB
manager.manage()
expect("behind it", (asked, len(manager.wishes.plans)), ([3], 0))
print("no more is taken than there is")
