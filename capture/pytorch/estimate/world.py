"""What a script that runs on made-up values may not do: change a file that was there before, write a
checkpoint, use the network. Each function takes one of these away. What was left out is noted once.
"""

import builtins
import io
import os
import shutil
import socket
import tempfile
import time


def leave_files_alone(run):
    """Files that were there before stay as they are, and checkpoints are not written."""
    torch = run.torch

    def unsaved(name):
        def save(*args, **kwargs):
            run.note("%s was called and wrote nothing: there was nothing real to write" % name)

        return save

    torch.save = torch.serialization.save = unsaved("torch.save")
    original, made = builtins.open, set()

    def opening(file, mode="r", *args, **kwargs):
        if isinstance(file, (str, bytes, os.PathLike)) and isinstance(mode, str) and set(mode) & set("wax+"):
            path = os.path.abspath(os.fsdecode(file))
            if os.path.isfile(path) and path not in made:
                run.note("%s was there already: what the script wrote to it was thrown away" % path)
                named = {
                    name: kwargs.get(name) for name in ("encoding", "errors", "newline") if "b" not in mode
                }
                return tempfile.TemporaryFile("w+b" if "b" in mode else "w+", **named)
            if not os.path.exists(path):
                made.add(path)
        return original(file, mode, *args, **kwargs)

    builtins.open = io.open = opening
    run.open = original

    began = time.time()

    def old(path):
        """Whether a file, or anything in a folder, was there before the script began."""
        try:
            if os.path.isdir(path) and not os.path.islink(path):
                inside = os.listdir(path)
                return (
                    any(old(os.path.join(path, name)) for name in inside)
                    if inside
                    else os.lstat(path).st_ctime < began
                )
            return os.lstat(path).st_ctime < began
        except OSError:
            return False

    def kept(name, function):
        def change(path, *args, **kwargs):
            if isinstance(path, (str, bytes, os.PathLike)) and old(path):
                run.note(
                    "%s of %s was left out: it was there already" % (name, os.path.abspath(os.fsdecode(path)))
                )
                return None
            return function(path, *args, **kwargs)

        return change

    run.replace = os.replace
    for module, name in (
        (os, "remove"),
        (os, "unlink"),
        (os, "rename"),
        (os, "replace"),
        (os, "rmdir"),
        (shutil, "rmtree"),
        (shutil, "move"),
    ):
        setattr(module, name, kept("%s.%s" % (module.__name__, name), getattr(module, name)))


def stay_offline(run):
    """Connections to other machines fail as they do without a network."""

    def allowed(address):
        host = address[0] if isinstance(address, tuple) else ""
        return not isinstance(address, tuple) or host in ("", "localhost", "::1") or host.startswith("127.")

    def guarded(function):
        def connect(self, address):
            if not allowed(address):
                run.note("a connection to %s was refused: an estimate reaches no network" % (address[0],))
                raise OSError(101, "gmemtop refuses connections while it estimates")
            return function(self, address)

        return connect

    kind = socket.socket

    class Socket(kind):
        connect = guarded(kind.connect)
        connect_ex = guarded(kind.connect_ex)

    socket.socket = Socket
