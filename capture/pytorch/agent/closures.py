"""The closure that a program passes to an optimizer's step.

The optimizer calls it, but it runs the program's forward and backward passes. Lightning always trains in a
closure, and LBFGS calls its closure several times per step.
"""

from __future__ import annotations

import functools
from typing import Any, Callable


def around_closure(args: Any, kwargs: Any, inside: Callable[[bool], None]) -> tuple[Any, Any] | None:
    """The arguments of an optimizer's step, with its closure replaced by one that calls inside(True) before
    it and inside(False) after it, however it ends. None if there is no closure."""
    given = kwargs.get("closure")
    if callable(given):
        return args, dict(kwargs, closure=_wrapped(given, inside))
    if len(args) > 1 and callable(args[1]):
        return (args[0], _wrapped(args[1], inside)) + tuple(args[2:]), kwargs
    return None


def _wrapped(original: Callable[..., Any], inside: Callable[[bool], None]) -> Callable[..., Any]:
    @functools.wraps(original)
    def closure(*args: Any, **kwargs: Any) -> Any:
        inside(True)
        try:
            return original(*args, **kwargs)
        finally:
            inside(False)

    return closure
