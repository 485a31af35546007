"""What the script's threads hold.

A thread that draws a batch, or logs it, holds the tensors that it was given until it ends, and the training
goes on meanwhile. How many steps that takes depends on how long a step and the thread take. Here a step takes
another time than on the card, so chance would decide whether a batch is still there at the peak. So we hold
what a thread was given for HELD more steps, as a slow thread would on a fast card, unless the script waits
for the thread.
"""

import functools
import threading

from .training import tensors_in

HELD = 2


class Held:
    """The tensors on the device that threads were given, unless the script knows that a thread has ended."""

    def __init__(self, run):
        self.run, self.by = run, {}
        kind, held = threading.Thread, self
        start, join, is_alive = kind.start, kind.join, kind.is_alive

        @functools.wraps(start)
        def begin(thread):
            held.started(thread)
            start(thread)

        @functools.wraps(join)
        def wait(thread, timeout=None):
            join(thread, timeout)
            if not is_alive(thread):
                held.by.pop(thread, None)

        @functools.wraps(is_alive)
        def ask(thread):
            alive = is_alive(thread)
            if not alive:
                held.by.pop(thread, None)
            return alive

        kind.start, kind.join, kind.is_alive = begin, wait, ask

    def started(self, thread):
        """A thread starts: its arguments are still there."""
        given = tensors_in(self.run.torch, thread._args, thread._kwargs)
        given = [t for t in given if t.device.type == "cuda"]
        if given:
            self.by[thread] = self.run.trained() + HELD, given
            self.run.note_at(
                "a thread is given tensors on the GPU: they count for %d more steps, unless the script waits "
                "for the thread, so the estimate may be too high" % HELD,
                self.run.line(),
            )

    def stepped(self):
        """A step has ended."""
        steps = self.run.trained()
        for thread, (last, _) in list(self.by.items()):
            if steps >= last:
                self.by.pop(thread, None)
