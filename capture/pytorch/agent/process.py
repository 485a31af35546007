"""What the agent asks of the process that it lives in."""

from __future__ import annotations

import os
import sys
import threading
import types
from typing import Any

from .says import Refused, Says

OLDEST = 2, 2  # of torch: what the agent calls came with it


def too_old(torch: Any) -> str:
    """Why nothing begins under this torch, "" where nothing speaks against it: of one that is being
    imported, or calls itself something else, nothing is known."""
    version = str(getattr(torch, "__version__", ""))
    try:
        if tuple(int(n) for n in version.split(".")[:2]) >= OLDEST:
            return ""
    except ValueError:
        return ""
    return Says("torch_too_old", version, "%d.%d" % OLDEST)


def environment_number(*names: str) -> int:
    """The first of some environment variables that is a number, -1 if none is."""
    for name in names:
        if os.environ.get(name, "").isdecimal():
            return int(os.environ[name])
    return -1


def initializing(module: Any) -> bool:
    """Whether a module is being imported."""
    return bool(getattr(getattr(module, "__spec__", None), "_initializing", False))


def silent() -> bool:
    """Whether this process does not train: it is a child of multiprocessing (a data loader's or a compiler's
    worker) or a launcher."""
    import multiprocessing

    main = getattr(sys.modules.get("__main__"), "__spec__", None)
    return (
        multiprocessing.parent_process() is not None
        or getattr(multiprocessing.current_process(), "_inheriting", False)
        or (main is not None and main.name.startswith("torch."))
        or "torchrun" in sys.argv[:1]
    )


def importing(torch: Any) -> bool:
    """Whether torch is being imported: two threads that import parts of it wait for each other, and Python
    ends that by giving one of them half a module."""
    there = sys.modules.get("torch")
    if there is not torch:
        raise Refused(Says("torch_import_failed"))
    return initializing(there)


def stepping() -> bool:
    """Whether a thread other than this one is inside of an optimizer's step, where torch goes through its
    tables of hooks."""
    return bool(stepping_threads())


def stepping_threads() -> set[int]:
    """The threads other than this one that are inside of an optimizer's step."""
    here = threading.get_ident()
    # Keep the frames in no local: this function's own is among them, and would keep itself and its callers
    # alive.
    return {i for i, top in list(sys._current_frames().items()) if i != here and _steps(top)}


def optimizing() -> bool:
    """Whether this thread is inside of an optimizer's step, which may have begun before the agent came."""
    return _steps(_here())


def nested() -> bool:
    """Whether the step whose hook is running was called from another optimizer's step, or from a subclass's
    step that calls it."""
    innermost = _step(_here())
    return innermost is not None and _step(innermost.f_back) is not None


def runs_twice(code: types.CodeType) -> bool:
    """Whether this thread is inside of two calls of a function, one within the other."""
    frame, calls = _here(), 0
    while frame is not None and calls < 2:
        calls += frame.f_code is code
        frame = frame.f_back
    return calls == 2


def _here() -> types.FrameType | None:
    """The innermost frame of this thread."""
    return sys._current_frames().get(threading.get_ident())


def _steps(frame: types.FrameType | None) -> bool:
    """Whether a frame lies within the step of one of torch's optimizers."""
    return _step(frame) is not None


def _step(frame: types.FrameType | None) -> types.FrameType | None:
    """The innermost frame of torch's around the step of an optimizer, from a frame outwards."""
    while frame is not None:
        if frame.f_code.co_filename.endswith(os.path.join("torch", "optim", "optimizer.py")):
            return frame
        frame = frame.f_back
    return None
