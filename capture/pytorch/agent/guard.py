"""Handles errors of the agent: an error disarms the agent for good, and training goes on."""

from __future__ import annotations

import signal

from .says import why_of


class Guard:
    def __init__(self) -> None:
        self.dead = False  # the agent is disarmed, or has gone
        self.why = ""  # the first error

    def caught(self, error: BaseException) -> bool:
        """Disarm. Returns whether the error is the program's own and must be raised again."""
        self.why = self.why or why_of(error)
        self.dead = True  # only now: the agent's thread says why as soon as it sees this
        return not isinstance(error, Exception) or _raised_by_a_handler(error)

    def broke(self, error: BaseException) -> None:
        """Disarm, and raise the error again if it is the program's own."""
        if self.caught(error):
            raise error


def _raised_by_a_handler(error: BaseException) -> bool:
    """Whether one of the program's signal handlers raised the error while the agent ran."""
    handlers = set()
    for number in range(1, signal.NSIG):
        try:
            handlers.add(getattr(signal.getsignal(number), "__code__", None))
        except (ValueError, OSError):
            pass
    handlers.discard(None)
    tb = error.__traceback__
    while tb is not None:
        if tb.tb_frame.f_code in handlers:
            return True
        tb = tb.tb_next
    return False
