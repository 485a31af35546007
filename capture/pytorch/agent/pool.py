"""The pool in a training process: it serves torch's planned allocations from one block, at planned offsets.

This is the Python half of pool.c, which explains how it works. This half finds torch's allocator, makes sure
that it is one we know, takes the memory from it, and passes plans and figures on. Nothing here raises into
training: if something goes wrong, the method returns a sentence that says what.
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct
import sys
import threading
from typing import Any, Callable

from .says import Refused, Says, why_of
from .slots import SLOTS, Symbols, table

RUNTIME = (
    "cudaStreamIsCapturing",
    "cudaEventCreateWithFlags",
    "cudaEventRecord",
    "cudaEventQuery",
    "cudaEventDestroy",
    "cudaStreamWaitEvent",
    "cudaGetDevice",
    "cudaSetDevice",
    "cudaGetLastError",
)
FIGURES = (
    "served",
    "served_bytes",
    "missed",
    "unplanned",
    "occupied",
    "elsewhere",
    "captured",
    "iterations",
    "last_served",
    "last_served_bytes",
    "planned",
    "planned_bytes",
    "why",
    "live",
    "live_bytes",
    "held",
    "arenas",
    "arena_bytes",
    "armed",
    "installed",
    "lost",
)
WHY = ("", Says("pool_off"), Says("pool_stale"))
ALIGN = {"cpu": 64, "cuda": 512}
MAX_ENTRIES, MAX_EVENTS = 1 << 20, 1 << 18
EVENT = "<qqQQQq"  # struct event of serve.h
NOT_INSTALLED = (
    Says("pool_does_not_fit"),
    Says("pool_of_parent"),
    Says("pool_of_device"),
    Says("pool_in_use"),
)
NOT_ARMED = (
    Says("arena_full"),
    Says("entry_misplaced"),
    Says("entries_missing"),
    Says("tables_full"),
    Says("plan_in_use"),
    Says("tensors_alive"),
    Says("tensors_of_stream"),
)


def _guarded(method: Callable[..., Any]) -> Callable[..., str]:
    """Make a method return a sentence instead of raising. In a forked child the method does nothing."""

    def call(self: Pool, *args: Any) -> str:
        if os.getpid() != self.pid:
            return NOT_INSTALLED[1]
        try:
            said: str = method(self, *args) or ""
            return said
        except Exception as e:
            self.error = why_of(e)
        return self.error

    call.__name__, call.__doc__ = method.__name__, method.__doc__
    return call


class Pool:
    """The pool of one device. Call record, arm and step on the training thread at the end of a step; the
    other methods may be called on any thread."""

    def __init__(self, torch: Any, library_path: str, device: object = None) -> None:
        self.torch = torch
        self.path = library_path
        self.pid = os.getpid()
        self.device = str(device or ("cuda" if torch.cuda.is_initialized() else "cpu"))
        self.kind = self.device.split(":")[0]
        self.library: Any = None
        self.found: tuple[int, int, tuple[int, ...]] | None = None
        self.installed = False
        self.error = ""
        self.thread = 0

    def refusal(self) -> str:
        """Why this process cannot have a pool, as a sentence; "" if it can."""
        try:
            self._check()
        except Exception as e:
            return why_of(e)
        return ""

    def _check(self) -> None:
        torch, version = self.torch, str(self.torch.__version__)
        number = tuple(int(n) for n in version.split(".")[:2] if n.isdigit())
        if sys.platform != "linux" or platform.machine() not in ("x86_64", "aarch64"):
            raise Refused(Says("pool_platform"))
        if not getattr(sys, "_is_gil_enabled", lambda: True)():
            raise Refused(Says("pool_free_threads"))
        if self.kind not in SLOTS:
            raise Refused(Says("pool_device", self.device))
        if number not in SLOTS[self.kind]:
            oldest, newest = "%d.%d" % min(SLOTS[self.kind]), "%d.%d" % max(SLOTS[self.kind])
            raise Refused(Says("pool_torch", oldest, newest, version))
        if self.kind == "cuda":
            if platform.machine() != "x86_64":
                raise Refused(Says("pool_arm_gpu"))
            if getattr(torch.version, "hip", None):
                raise Refused(Says("pool_rocm"))
            if torch.cuda.get_allocator_backend() == "pluggable":
                raise Refused(Says("pool_pluggable"))
            if torch.cuda.get_allocator_backend() != "native":
                raise Refused(Says("pool_backend", torch.cuda.get_allocator_backend()))
            if os.environ.get("PYTORCH_NO_CUDA_MEMORY_CACHING"):
                raise Refused(Says("pool_no_caching"))
        if self.library is None:
            self.library = self._load()
        if self.found is None:
            self.found = table(self.kind, self.library.pool_theirs)
            if SLOTS[self.kind][number] != self.found[2]:
                raise Refused(Says("pool_slots", version, str(self.found[2]), str(SLOTS[self.kind][number])))

    def _load(self) -> ctypes.CDLL:
        try:
            library = ctypes.CDLL(self.path)
        except OSError as e:
            raise Refused(Says("pool_library", str(e))) from e
        i32, i64, pointer = ctypes.c_int32, ctypes.c_int64, ctypes.c_void_p
        for name, result, arguments in (
            ("install", ctypes.c_int, [pointer, ctypes.c_int, pointer, pointer]),
            ("theirs", pointer, [pointer]),
            ("adopt", None, [i64]),
            ("drop", None, []),
            ("arm", ctypes.c_int, [i64, i64, i32, pointer, pointer, i32, ctypes.c_int]),
            ("step", None, []),
            ("disarm", None, []),
            ("remove", None, []),
            ("record", ctypes.c_int, [i64]),
            ("events", i64, [pointer]),
            ("free", None, [pointer]),
            ("read", ctypes.c_int, [pointer, ctypes.c_int]),
        ):
            function = getattr(library, "pool_" + name)
            function.restype, function.argtypes = result, arguments
        return library

    def _calls(self) -> Any:
        """The addresses of the CUDA functions that pool.c calls, in its order. dlsym on libc10_cuda finds the
        CUDA runtime that it was linked with; a preloaded library takes precedence, as it does for libc10_cuda
        itself."""
        libraries = []
        for path in os.environ.get("LD_PRELOAD", "").replace(" ", ":").split(":") + [
            Symbols("libc10_cuda.so").path
        ]:
            try:
                libraries += [ctypes.CDLL(path)] if path else []
            except OSError:  # it is not loaded
                pass
        names = ("_ZN3c104cuda20getCurrentCUDAStreamEa", "_ZNK3c104cuda10CUDAStream6streamEv") + RUNTIME

        def address(name: str) -> int | None:
            for library in libraries[:-1]:
                try:
                    return ctypes.cast(library[name], ctypes.c_void_p).value
                except AttributeError:
                    pass
            return ctypes.cast(libraries[-1][name], ctypes.c_void_p).value

        return (ctypes.c_void_p * len(names))(*[address(name) for name in names])

    def _install(self) -> None:
        self._check()
        if self.installed or self.found is None:
            return
        address, count, slots = self.found
        code = self.library.pool_install(
            address,
            count,
            (ctypes.c_int * len(slots))(*slots),
            self._calls() if self.kind == "cuda" else None,
        )
        if code:
            raise Refused(NOT_INSTALLED[code - 1])
        self.installed = True

    # -- recording -------------------------------------------------------------------------------------------

    @_guarded
    def record(self, room: int = MAX_EVENTS) -> None:
        """Start to record allocations and frees, at most `room` of them."""
        if self.kind != "cpu":
            raise Refused(Says("records_itself"))
        self._install()
        if not self.library.pool_record(room):
            raise Refused(Says("recording_full"))
        self.thread = threading.get_ident()

    def events(self) -> dict[str, Any] | None:
        """End the recording. Returns {device, thread, lost, events}, None if nothing was recorded. An event
        is [kind, size, stream, thread, address, time], with kind 0 for an allocation, 1 for a free, 2 for the
        end of a step."""
        if not self.installed or os.getpid() != self.pid:
            return None
        try:
            into = ctypes.c_void_p()  # not a type of our own: ctypes never frees those
            n = self.library.pool_events(ctypes.byref(into))
            events = struct.iter_unpack(
                EVENT, ctypes.string_at(into, n * struct.calcsize(EVENT)) if n else b""
            )
            rows = [
                [kind, size, stream, thread, data, time] for time, size, data, stream, thread, kind in events
            ]
            self.library.pool_free(into)
            return {
                "device": self.device,
                "thread": self.thread,
                "lost": self._figures()["lost"],
                "events": rows,
            }
        except Exception as e:
            self.error = why_of(e)
            return None

    # -- serving ---------------------------------------------------------------------------------------------

    @_guarded
    def arm(self, plan: dict[str, Any]) -> None:
        """Serve from a plan from now on: {arena: bytes, entries: [[size, offset, stream], ...], steps: 1}.
        torch serves entries with offset -1."""
        entries, arena, steps = plan["entries"], int(plan["arena"]), int(plan.get("steps", 1))
        if not 0 < len(entries) <= MAX_ENTRIES or arena <= 0:
            raise Refused(Says("entries_many", len(entries), arena, MAX_ENTRIES))
        self._install()
        if self.kind == "cuda":
            with self.torch.cuda.device(
                self.device if ":" in self.device else self.torch.cuda.current_device()
            ):
                self.torch.cuda.synchronize()
                self.torch.cuda.empty_cache()  # make room for the arena
                return self._arm(entries, arena, steps, self.torch.cuda.current_stream().cuda_stream)
        return self._arm(entries, arena, steps, 0)

    def _arm(self, entries: list[Any], arena: int, steps: int, stream: int) -> None:
        here = [e for e in entries if int(e[2]) == stream]
        sizes, offsets = ((ctypes.c_int64 * len(here))(*[int(e[i]) for e in here]) for i in (0, 1))
        self.library.pool_adopt(arena)
        try:
            block = self.torch.empty(arena, dtype=self.torch.uint8, device=self.device)
            del block  # pool.c keeps the memory
        finally:
            self.library.pool_adopt(0)
        code = self.library.pool_arm(
            arena, ALIGN[self.kind], len(here), sizes, offsets, steps, self.kind == "cpu"
        )
        if code:
            self.library.pool_drop()
            raise Refused(NOT_ARMED[code - 1])

    def step(self) -> None:
        """A step has ended: match allocations from the plan's beginning again."""
        if self.installed and os.getpid() == self.pid:
            self.library.pool_step()

    @_guarded
    def disarm(self) -> None:
        """Stop serving. The arena goes back to torch when its last block is freed."""
        if self.installed:
            self.library.pool_disarm()

    def _figures(self) -> dict[str, int]:
        figures = (ctypes.c_int64 * len(FIGURES))()
        self.library.pool_read(figures, len(FIGURES))
        return dict(zip(FIGURES, figures))

    def counters(self) -> dict[str, Any]:
        """The figures since the pool was armed, and why it has stopped serving."""
        if self.library is None or os.getpid() != self.pid:
            return dict(dict.fromkeys(FIGURES, 0), why=self.error)
        figures: dict[str, Any] = dict(self._figures())
        figures["why"] = WHY[figures["why"]] or self.error
        return figures

    @_guarded
    def remove(self) -> str:
        """Take the pool out of torch's allocator. Returns what is left behind, "" for nothing."""
        if not self.installed:
            return ""
        self.library.pool_remove()
        self.installed = False
        return self.left()

    def left(self) -> str:
        """What is left of a removed pool, "" for nothing. It goes away with the last tensor it served."""
        if self.library is None or os.getpid() != self.pid:
            return ""
        figures = self._figures()
        if figures["arenas"]:
            return Says("pool_left", figures["live"] + figures["held"], figures["arena_bytes"])
        if figures["installed"]:
            return Says("pool_wrapped")
        return ""
