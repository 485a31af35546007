"""What a script that runs on made-up values may not do: change existing files, write a checkpoint, use the
network. Each function prevents one of these. What was left out is noted once.
"""

import builtins
import contextlib
import ctypes
import functools
import io
import os
import pathlib
import pickle
import shutil
import socket
import tempfile

from .kernels import after_import
from .left import Left

MOVES = ("os.rename", "os.replace", "shutil.move")
THROWN_AWAY = "the script wrote to existing files, and what it wrote was thrown away"
LEFT_OUT = "the script tried to remove or rename existing files, which stay as they are"
COPIED = 1 << 30  # bytes: a file up to this size is copied if the script reads it and writes to it
SAVED_WHOLE = 1 << 16  # bytes: a CPU tensor up to this size is saved with its values


class _Birth(ctypes.Structure):
    """The part of struct statx that says when a file was made."""

    _fields_ = [
        ("mask", ctypes.c_uint32),
        ("before", ctypes.c_char * 76),
        ("seconds", ctypes.c_int64),
        ("nanoseconds", ctypes.c_uint32),
        ("after", ctypes.c_char * 164),
    ]


def born(path):
    """When a file was made, in seconds. If the file system does not say, when it last changed: a file that
    another process writes to then counts as new."""
    try:
        found, here, follow_no_link, birth_time = _Birth(), -100, 0x100, 0x800
        statx = ctypes.CDLL(None).statx
        if statx(here, os.fsencode(path), follow_no_link, birth_time, ctypes.byref(found)) == 0:
            if found.mask & birth_time:
                return found.seconds + found.nanoseconds / 1e9
    except (AttributeError, OSError):
        pass
    return os.lstat(path).st_ctime


def leave_files_alone(run):
    """Leave existing files as they are, and write no checkpoints."""
    saved = keep_saved(run)
    original, made, gone = builtins.open, set(), set()
    # This uses the file system's clock, and the same start for all processes of the command.
    began = os.stat(os.path.join(run.folder, "config.json")).st_mtime

    def old(path):
        """Whether a file, or anything in a folder, existed before the script began."""
        try:
            if os.path.isdir(path) and not os.path.islink(path):
                inside = os.listdir(path)
                return any(old(os.path.join(path, name)) for name in inside) if inside else born(path) < began
            return os.path.abspath(path) not in made and born(path) < began
        except OSError:
            return False

    def opening(file, mode="r", *args, **kwargs):
        if isinstance(file, (str, bytes, os.PathLike)) and isinstance(mode, str) and set(mode) & set("wax+"):
            path = os.path.abspath(os.fsdecode(file))
            if os.path.isfile(path) and old(path):
                run.note_at(THROWN_AWAY, path)
                named = {
                    name: kwargs.get(name) for name in ("encoding", "errors", "newline") if "b" not in mode
                }
                instead = tempfile.TemporaryFile("w+b" if "b" in mode else "w+", **named)
                instead.path = path
                if "+" in mode and "w" not in mode and os.path.getsize(path) <= COPIED:  # it may be read
                    with original(path, "rb") as old_text:
                        shutil.copyfileobj(old_text, getattr(instead, "buffer", instead))
                    instead.seek(0, os.SEEK_END if "a" in mode else os.SEEK_SET)
                return instead
            if not os.path.exists(path):
                made.add(path)
                opened = original(file, mode, *args, **kwargs)
                left.file(path, opened)
                return opened
        return original(file, mode, *args, **kwargs)

    builtins.open = io.open = opening
    run.open = original
    left = Left(run, original)
    os.open, os.mkdir = left.made_file(os.open), left.made_folder(os.mkdir, gone)

    def kept(name, function):
        @functools.wraps(function)
        def change(*args, **kwargs):
            path, to = places(args, kwargs)
            if isinstance(path, (str, bytes, os.PathLike)) and old(os.fsdecode(path)):
                gone.add(os.path.abspath(os.fsdecode(path)))
                run.note_at(LEFT_OUT, os.path.abspath(os.fsdecode(path)))
                return None
            named = name in MOVES and isinstance(to, (str, bytes, os.PathLike))
            if named and os.path.isfile(to) and old(os.fsdecode(to)):
                run.note_at(THROWN_AWAY, os.path.abspath(os.fsdecode(to)))
                if run.key_of(path) is not None:  # torch.load finds it there all the same
                    saved[os.path.abspath(os.fsdecode(to))] = saved[run.key_of(path)]
                return remove(path)
            if named and os.path.abspath(os.fsdecode(to)) in gone:  # a folder takes the place of another
                return rmtree(path)
            out = function(*args, **kwargs)
            if name in MOVES:
                left.moved(path, to if out is None else out)  # shutil.move says where it moved it
            return out

        return change

    run.replace, remove, rmtree = os.replace, os.remove, shutil.rmtree
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
    take_saved_for_files(saved)
    _map_privately(old)


def _map_privately(old):
    """numpy maps a file for writing unless told otherwise. One that was there is mapped privately instead."""
    try:
        import numpy
    except ImportError:
        return
    mapped = numpy.memmap.__new__

    @functools.wraps(mapped)
    def private(kind, filename, dtype=numpy.uint8, mode="r+", *args, **kwargs):
        path = isinstance(filename, (str, bytes, os.PathLike))
        if mode in ("r+", "readwrite") and path and old(os.fsdecode(filename)):
            mode = "c"
        return mapped(kind, filename, dtype, mode, *args, **kwargs)

    numpy.memmap.__new__ = private


def places(args, kwargs):
    """The path passed to a function of os or shutil, and the path that it moves or copies to, or None."""
    path = args[0] if args else kwargs.get("src", kwargs.get("path"))
    return path, args[1] if len(args) > 1 else kwargs.get("dst")


def take_saved_for_files(saved):
    """Scripts treat what they saved as files: they rename, copy, look for and remove them. There are no
    files, so these functions act on what we keep of them, by path."""

    def key(path):
        named = bool(saved) and isinstance(path, (str, bytes, os.PathLike))
        return os.path.abspath(os.fsdecode(path)) if named else None

    def target(at, to):
        to = key(to)
        return os.path.join(to, os.path.basename(at)) if os.path.isdir(to) else to

    def move(at, to):
        to = target(at, to)
        saved[to] = saved.pop(at)
        return to

    def copy(at, to):
        to = target(at, to)
        saved[to] = saved[at]
        return to

    def act(on, names, instead):
        for name in names.split():
            function = getattr(on, name)

            @functools.wraps(function)
            def call(*args, function=function, **kwargs):
                path, to = places(args, kwargs)
                at = key(path)
                if not at or at not in saved:
                    return function(*args, **kwargs)
                return instead(at) if to is None else instead(at, to)

            setattr(on, name, call)

    act(os, "rename replace", move)
    act(shutil, "move", move)
    act(os, "link", copy)
    act(shutil, "copy copy2 copyfile", copy)
    act(os, "remove unlink", lambda at: saved.pop(at) and None)
    act(os.path, "exists isfile", lambda at: True)
    act(pathlib.Path, "exists is_file", lambda at: True)


def keep_saved(run):
    """torch.save keeps the objects in memory, and torch.load returns them. Of a tensor we keep the layout but
    no values, except for a small one on the CPU. What is written is only a key, so that the script finds a
    file there. Returns what is kept, by key, and by path if a file was there already."""
    torch, saved = run.torch, {}
    save, load = torch.save, torch.load
    mark = b"gmemtop estimate %s " % os.urandom(8).hex().encode()
    length = len(mark) + 8  # the length of a key
    kinds = tuple(kind for kind in (torch.Tensor, torch.nn.Parameter, getattr(run, "fake", None)) if kind)

    def place(f):
        """The path that f is or was opened by; None for a file without a path."""
        name = getattr(f, "path", None) or getattr(f, "name", f)
        return os.path.abspath(os.fsdecode(name)) if isinstance(name, (str, bytes, os.PathLike)) else None

    def describe(t):
        """What a pickle has in the place of t; None has it pickled as it is."""
        if type(t) not in kinds or t.layout != torch.strided:
            return None
        storage, constant = t.untyped_storage(), getattr(t, "constant", None)
        if type(t) in kinds[:2] and t.device.type == "cpu" and storage.nbytes() <= SAVED_WHOLE:
            return None
        layout = (t.dtype, t.storage_offset(), tuple(t.shape), t.stride())
        where = (storage._cdata, storage.nbytes(), str(t.device))
        values = t.tolist() if constant is not None else None
        return isinstance(t, torch.nn.Parameter), t.requires_grad, where, layout, values

    def keep(obj, f, *args, **kwargs):
        if isinstance(obj, (torch.UntypedStorage, torch.storage.TypedStorage)):
            return save(obj, f, *args, **kwargs)  # it is being pickled, as a part of something else
        if not isinstance(f, io.BytesIO):
            run.note("torch.save was called, and what it wrote holds no weights: there are none")
        held = io.BytesIO()
        pickler = pickle.Pickler(held, protocol=4)
        pickler.persistent_id = describe
        try:
            pickler.dump(obj)
        except Exception as e:
            run.note("what torch.save was given cannot be loaded back: %s" % e)
            return None
        path, key = place(f), mark + b"%08d" % len(saved)
        saved[key] = held.getvalue()
        if hasattr(f, "write"):
            f.write(key)
            with contextlib.suppress(AttributeError):
                f.flush()
        else:
            with contextlib.suppress(OSError), open(f, "wb") as g:
                g.write(key)
        if path is not None and not reads(path, key):
            saved[path] = held.getvalue()

    def reads(path, key):
        """Whether a file holds the key."""
        try:
            with run.open(path, "rb") as g:
                return g.read(length) == key
        except OSError:
            return False

    def key_of(f):
        """The key that what f was saved as is kept by; None for anything else."""
        path = place(f)
        if path in saved:
            return path
        try:
            if not hasattr(f, "read"):
                with run.open(path, "rb") as g:
                    key = g.read(length)
            else:
                at = f.tell()
                key = f.read(length)
                f.seek(at)
        except (OSError, TypeError, ValueError):
            return None
        return key if key in saved else None

    def give_back(f, map_location=None, *args, **kwargs):
        found = key_of(f)
        if found is None:
            return load(f, map_location, *args, **kwargs)
        storages = {}

        def made(described):
            parameter, grad, (key, size, device), (dtype, offset, shape, stride), values = described
            if isinstance(map_location, dict):
                device = map_location.get(device, device)
            elif map_location is not None:
                device = "cpu" if callable(map_location) else map_location
            if values is not None:
                t = torch.tensor(values, dtype=dtype, device=device)
                return torch.nn.Parameter(t, grad) if parameter else t.requires_grad_(grad)
            if key not in storages:
                storages[key] = torch.empty(size, dtype=torch.uint8, device=device).untyped_storage()
            t = torch.empty(0, dtype=dtype, device=device)
            t.set_(storages[key], offset, shape, stride)
            return torch.nn.Parameter(t, grad) if parameter else t.requires_grad_(grad)

        unpickler = pickle.Unpickler(io.BytesIO(saved[found]))
        unpickler.persistent_load = made
        return unpickler.load()

    run.key_of = key_of
    torch.save = torch.serialization.save = keep
    torch.load = torch.serialization.load = give_back

    def take_safetensors(module):
        load_file = module.load_file

        def save_file(tensors, filename, *args, **kwargs):
            keep(dict(tensors), filename)

        def save_model(model, filename, *args, **kwargs):
            keep(model.state_dict(), filename)

        def give_back_file(filename, device="cpu", *args, **kwargs):
            if key_of(filename) is None:
                return load_file(filename, device, *args, **kwargs)
            return give_back(filename, device if isinstance(device, str) else "cuda:%d" % device)

        module.save_file, module.save_model, module.load_file = save_file, save_model, give_back_file

    after_import("safetensors.torch", take_safetensors)
    return saved


def stay_offline(run):
    """Make connections to other machines fail as they do without a network, and the look-up of their names,
    which also asks another machine."""
    refused = "gmemtop refuses connections while it estimates"

    def allowed(host):
        return host in ("", "localhost", "::1") or host.startswith("127.")

    def refuse(host):
        run.note("a connection to %s was refused: an estimate uses no network" % host)

    def guarded(function):
        def connect(self, address):
            if isinstance(address, tuple) and not allowed(address[0]):
                refuse(address[0])
                raise OSError(101, refused)
            return function(self, address)

        return connect

    def looked_up(function):
        @functools.wraps(function)
        def look_up(host, *args, **kwargs):
            name = host.decode("ascii", "replace") if isinstance(host, bytes) else host or ""
            number = ":" in name or name.replace(".", "").isdigit()  # an address is not looked up
            if not (number or allowed(name) or name == socket.gethostname()):
                refuse(name)
                raise socket.gaierror(socket.EAI_FAIL, refused)
            return function(host, *args, **kwargs)

        return look_up

    kind = socket.socket

    class Socket(kind):
        connect = guarded(kind.connect)
        connect_ex = guarded(kind.connect_ex)

    socket.socket = Socket
    for name in ("getaddrinfo", "gethostbyname", "gethostbyname_ex"):
        setattr(socket, name, looked_up(getattr(socket, name)))
