"""What the agent asks about its process."""

from __future__ import annotations

import inspect
import os
import sys
import threading
import time
import types
from typing import Any

from .says import Refused, Says

OLDEST = 2, 2  # the oldest torch that has all that the agent calls


def too_old(torch: Any) -> str:
    """Why the agent cannot start with this torch, "" if nothing speaks against it. Nothing is known about a
    torch that is still being imported or whose version is not a number."""
    version = str(getattr(torch, "__version__", ""))
    try:
        if tuple(int(n) for n in version.split(".")[:2]) >= OLDEST:
            return ""
    except ValueError:
        return ""
    return Says("torch_too_old", version, "%d.%d" % OLDEST)


def environment_number(*names: str) -> int:
    """The first of these environment variables that is a number, -1 if none is."""
    for name in names:
        if os.environ.get(name, "").isdecimal():
            return int(os.environ[name])
    return -1


def initializing(module: Any) -> bool:
    """Whether a module is being imported."""
    return bool(getattr(getattr(module, "__spec__", None), "_initializing", False))


def silent() -> bool:
    """Whether this process does not train: it is a multiprocessing child (a worker of a data loader or a
    compiler) or a launcher."""
    import multiprocessing

    main = getattr(sys.modules.get("__main__"), "__spec__", None)
    return (
        multiprocessing.parent_process() is not None
        or getattr(multiprocessing.current_process(), "_inheriting", False)
        or (main is not None and main.name.startswith("torch."))
        or "torchrun" in sys.argv[:1]
    )


def importing(torch: Any) -> bool:
    """Whether torch is still being imported. If two threads import parts of it, they wait for each other, and
    Python breaks the deadlock by giving one of them half a module."""
    # when an import has succeeded, Python takes the module out of this table and puts it back
    for _ in range(100):
        if sys.modules.get("torch") is torch:
            return initializing(torch)
        time.sleep(0.01)
    raise Refused(Says("torch_import_failed"))


def calling_hooks() -> bool:
    """Whether another thread may be iterating over torch's tables of optimizer hooks.

    torch does that before and after the code of a step, not within it. The difference matters if the program
    trains in a closure, as with LBFGS: then almost no time passes between two steps.
    """
    here, (hooked, own) = threading.get_ident(), _step_codes()
    return any(i != here and _calls_hooks(top, hooked, own) for i, top in list(sys._current_frames().items()))


def _step_codes() -> tuple[types.CodeType, set[types.CodeType]]:
    """The code with which torch wraps a step to call hooks, and the code of all optimizers' steps."""
    base = sys.modules["torch.optim.optimizer"].Optimizer
    classes = [base]
    for c in classes:
        classes += c.__subclasses__()
    steps = (inspect.unwrap(c.step) for c in classes)
    wrapped = base.profile_hook_step(lambda: None)
    return wrapped.__code__, {step.__code__ for step in steps if isinstance(step, types.FunctionType)}


def _calls_hooks(frame: types.FrameType | None, hooked: types.CodeType, own: set[types.CodeType]) -> bool:
    """Whether a frame is inside torch's wrapper around a step, but not inside that step's own code."""
    within = False
    while frame is not None:
        if frame.f_code is hooked:
            if not within:
                return True
            within = False
        elif frame.f_code in own:
            within = True
        frame = frame.f_back
    return False


def stepping_threads() -> set[int]:
    """The other threads that are inside an optimizer's step."""
    here = threading.get_ident()
    # Do not keep the frames in a local variable: this function's own frame is among them, and would keep
    # itself and its callers alive.
    return {i for i, top in list(sys._current_frames().items()) if i != here and _steps(top)}


def optimizing() -> bool:
    """Whether this thread is inside an optimizer's step, which may have begun before the agent started."""
    return _steps(_here())


def nested() -> bool:
    """Whether the step whose hook is running was called from another optimizer's step, for example from a
    subclass's."""
    innermost = _step(_here())
    return innermost is not None and _step(innermost.f_back) is not None


def runs_twice(code: types.CodeType) -> bool:
    """Whether this thread is inside two nested calls of a function."""
    frame, calls = _here(), 0
    while frame is not None and calls < 2:
        calls += frame.f_code is code
        frame = frame.f_back
    return calls == 2


def _here() -> types.FrameType | None:
    """The innermost frame of this thread."""
    return sys._current_frames().get(threading.get_ident())


def _steps(frame: types.FrameType | None) -> bool:
    """Whether a frame is inside the step of one of torch's optimizers."""
    return _step(frame) is not None


def _step(frame: types.FrameType | None) -> types.FrameType | None:
    """The innermost frame of torch's optimizer step, searching outwards from a frame."""
    while frame is not None:
        if frame.f_code.co_filename.endswith(os.path.join("torch", "optim", "optimizer.py")):
            return frame
        frame = frame.f_back
    return None
