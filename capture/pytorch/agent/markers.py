"""Marker files, by which viewers find the agent."""

from __future__ import annotations

import json
import os

from .wire import VERSION


def started() -> int:
    """When this process started, in kernel ticks; 0 if unknown."""
    try:
        with open("/proc/self/stat") as f:
            return int(f.read().rpartition(")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return 0


class Markers:
    """Files that tell viewers where the agent is, in two folders that only its user can enter: the agent's
    own, and the one that the socket is in."""

    def __init__(self, socket_path: str) -> None:
        self.socket_path = socket_path
        self.paths: list[str] = []

    def put(self) -> None:
        pid = os.getpid()
        own = os.path.join(os.environ.get("XDG_RUNTIME_DIR") or "/tmp", "gmemtop-%d" % os.getuid())
        for folder in sorted({own, os.path.dirname(self.socket_path)}):
            try:
                if folder == own and not os.path.isdir(folder):
                    os.mkdir(folder, 0o700)  # the viewer makes the other one
                if os.lstat(folder).st_uid != os.getuid() or os.path.islink(folder):
                    continue
                path = os.path.join(folder, "%d.json" % pid)
                told = {"version": VERSION, "pid": pid, "start": started(), "socket": self.socket_path}
                with open(path + ".part", "w") as f:
                    f.write(json.dumps(told))  # json.dump leaves cyclic garbage
                os.replace(path + ".part", path)
                self.paths.append(path)
            except OSError:
                pass  # nobody finds the agent again without it, but that is no reason to disturb training

    def remove(self) -> None:
        """Remove the files: viewers no longer find this agent, and another may start in this process."""
        while self.paths:
            try:
                os.unlink(self.paths.pop())
            except OSError:
                pass
