"""The files by which viewers find the agent."""

from __future__ import annotations

import json
import os

from .wire import VERSION


def started() -> int:
    """When this process began, in the kernel's ticks; 0 if unknown."""
    try:
        with open("/proc/self/stat") as f:
            return int(f.read().rpartition(")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return 0


class Markers:
    """Word of where a viewer finds the agent, in folders that only its user can enter: one of its own, and
    the one that the socket is in."""

    def __init__(self, socket_path: str) -> None:
        self.socket_path = socket_path
        self.paths: list[str] = []

    def put(self) -> None:
        pid = os.getpid()
        own = os.path.join(os.environ.get("XDG_RUNTIME_DIR") or "/tmp", "gmemtop-%d" % os.getuid())
        for folder in sorted({own, os.path.dirname(self.socket_path)}):
            try:
                if folder == own and not os.path.isdir(folder):
                    os.mkdir(folder, 0o700)  # the other is the viewer's to make
                if os.lstat(folder).st_uid != os.getuid() or os.path.islink(folder):
                    continue
                path = os.path.join(folder, "%d.json" % pid)
                told = {"version": VERSION, "pid": pid, "start": started(), "socket": self.socket_path}
                with open(path + ".part", "w") as f:
                    f.write(json.dumps(told))  # json.dump leaves cyclic garbage
                os.replace(path + ".part", path)
                self.paths.append(path)
            except OSError:
                pass  # without it the agent is not found again; it is no reason to trouble the training

    def remove(self) -> None:
        """Viewers no longer find this agent, and another may start in this process."""
        while self.paths:
            try:
                os.unlink(self.paths.pop())
            except OSError:
                pass
