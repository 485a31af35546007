"""What a script that runs on made-up values may not do: change existing files, write a checkpoint, use the
network. Each function prevents one of these. What was left out is noted once.
"""

import builtins
import ctypes
import functools
import io
import os
import pathlib
import pickle
import shutil
import socket
import tempfile

from .left import Left

MOVES = ("os.rename", "os.replace", "shutil.move")
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
    original, made = builtins.open, set()
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
                run.note("%s was there already: what the script wrote to it was thrown away" % path)
                named = {
                    name: kwargs.get(name) for name in ("encoding", "errors", "newline") if "b" not in mode
                }
                instead = tempfile.TemporaryFile("w+b" if "b" in mode else "w+", **named)
                instead.path = path
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
    os.open, os.mkdir = left.made_file(os.open), left.made_folder(os.mkdir)

    def kept(name, function):
        @functools.wraps(function)
        def change(*args, **kwargs):
            path, to = places(args, kwargs)
            if isinstance(path, (str, bytes, os.PathLike)) and old(os.fsdecode(path)):
                run.note(
                    "%s of %s was left out: it was there already" % (name, os.path.abspath(os.fsdecode(path)))
                )
                return None
            named = name in MOVES and isinstance(to, (str, bytes, os.PathLike))
            if named and os.path.isfile(to) and old(os.fsdecode(to)):
                to = os.path.abspath(os.fsdecode(to))
                run.note("%s was there already: what the script moved there was thrown away" % to)
                return remove(path)
            out = function(*args, **kwargs)
            if name in MOVES:
                left.moved(path, to if out is None else out)  # shutil.move says where it moved it
            return out

        return change

    run.replace, remove = os.replace, os.remove
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
    """torch.save to a file keeps the objects in memory, and torch.load returns them. Of a tensor we keep the
    layout but no values, except for a small one on the CPU. torch.save to a buffer, which a library may write
    to a file and read again, writes only a key. Returns what is kept, by path or key."""
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
            run.note("torch.save was called and wrote nothing: there was nothing real to write")
        held = io.BytesIO()
        pickler = pickle.Pickler(held, protocol=4)
        pickler.persistent_id = describe
        try:
            pickler.dump(obj)
        except Exception as e:
            run.note("what torch.save was given cannot be loaded back: %s" % e)
            return None
        key = place(f)
        if isinstance(f, io.BytesIO):
            key = mark + b"%08d" % len(saved)
            f.write(key)
        saved[key] = held.getvalue()

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

    torch.save = torch.serialization.save = keep
    torch.load = torch.serialization.load = give_back
    try:
        import safetensors.torch as tensors
    except ImportError:
        return saved
    tensors.save_file = tensors.save_model = lambda *args, **kwargs: run.note(
        "safetensors was to write a file and wrote nothing: there was nothing real to write"
    )
    return saved


def stay_offline(run):
    """Make connections to other machines fail as they do without a network, and the look-up of their names,
    which also asks another machine."""
    refused = "gmemtop refuses connections while it estimates"

    def allowed(host):
        return host in ("", "localhost", "::1") or host.startswith("127.")

    def refuse(host):
        run.note("a connection to %s was refused: an estimate reaches no network" % host)

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
