"""What was computed and what was not: counters for tests, and errors that name the op."""

import collections
import os
import sys
import threading

from . import runtime

computed = collections.Counter()
uncomputed = {}  # op -> why, the first time
strict = os.environ.get("STANDIN_COMPUTE") != "note"
_late_error = None
_lock = threading.Lock()


class Uncomputed(RuntimeError):
    """An op whose numbers would be wrong."""


def refuse(op, why):
    """Note that an op was not computed, and raise Uncomputed unless STANDIN_COMPUTE=note."""
    _remember(op, why)
    if strict:
        raise Uncomputed(f"{op} is not computed on the stand-in GPU: {why}")


def late(op, error):
    """Note an error in work that ran later than its op was called. The next op raises it."""
    global _late_error
    why = f"{type(error).__name__}: {error}"
    _remember(op, why)
    print(f"standin: {op} failed when its stream reached it: {why}", file=sys.stderr, flush=True)
    with _lock:
        if _late_error is None:
            _late_error = f"{op}, called earlier, failed when its stream reached it: {why}"


def raise_late():
    """Raise the error of earlier work, once."""
    global _late_error
    if _late_error is None or not strict:
        return
    with _lock:
        message, _late_error = _late_error, None
    if message is not None:
        raise Uncomputed(message)


def _remember(op, why):
    why = why.splitlines()[0][:300] if why else "unknown"
    with _lock:
        new = op not in uncomputed
        uncomputed.setdefault(op, why)
    if new:
        runtime.note(op, why)
