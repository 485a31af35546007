"""The agent itself: it lives in a training process, reports every step to a viewer, and captures steps when
asked.

torch calls global hooks before and after each step of every optimizer, even of optimizers made before the
hooks. A training step ends where the first optimizer of the period has stepped. Everything else follows from
three rules.

Training comes first. Every entry from torch into the agent is guarded: if anything goes wrong, the agent
disarms itself for good and training goes on. If one of the program's signal handlers raises while the agent
happens to run, the exception belongs to the program and is passed on. The training thread takes no lock,
writes to no socket and waits for nothing: it appends to a bounded queue and, if a daemon thread sleeps until
a step ends, wakes it by a byte into a pipe. That thread sends what it finds, at most twenty times a second.
The agent measures its own cost; whatever costs more than 1/400 of the time between two of its runs is run
less often.

Things change on their own thread. A dispatch mode belongs to a thread, so the hook that ends a step opens and
closes windows. torch's tables of hooks must not change while a thread iterates over them, so hooks are added
and removed only while no thread is about to call them or to return from them.

The agent can leave. Detaching removes the hooks, the wrapped functions, the thread, the socket, the files and
the finalizer. That is why os.register_at_fork is not used: its callbacks cannot be removed. A forked child
notices that its process id has changed.
"""

from __future__ import annotations

import functools
import os
import sys
import threading
import time
import weakref
from typing import TYPE_CHECKING, Any, Callable

from .around import around_backward, around_update, in_closure
from .carry import Carrier
from .closures import around_closure
from .guard import Guard
from .leftovers import clear_leftovers
from .link import Bell, Link, refuse
from .lookout import Lookout
from .manage import Manager
from .markers import Markers
from .modules import MODULE_NAMES
from .optimizers import Optimizers
from .outbox import Outbox
from .patch import Patches
from .process import calling_hooks, importing, nested, silent, too_old
from .says import Says, told
from .send import Sender
from .settings import settings
from .steps import Steps
from .tally import Tally, counting
from .totals import SHARE, Totals
from .unlisted import Unlisted
from .windows import Windows
from .wishes import Wishes

if TYPE_CHECKING:
    from .kinds import Module, Optimizer

WARM = 2  # steps before the ones described unasked
# milliseconds between two checks for something to send, if no step wakes the thread: SHARE times the duration
# of the last check, within these
TICK, SLOWEST = 500, 2000
LAST = 60.0  # seconds that an ending process waits at most for a viewer that reads
# nanoseconds for which steps are only counted; the step after them reads memory, does what viewers asked for,
# and notices a fork
REST = 250000000
ALONE = 60  # seconds after which an attached agent leaves if no viewer has ever connected


class Agent:
    """Is told of steps, and starts and stops all parts of the agent."""

    def __init__(self, path: str, launched: bool) -> None:
        self.path, self.launched = path, launched
        self.clock = time.perf_counter_ns
        self.tally = Tally(self.clock() if launched else None)
        self._make()

    def _make(self) -> None:
        """Make everything that belongs to one process."""
        self.torch = torch = sys.modules["torch"]
        self.pid = os.getpid()
        self.epoch = time.time_ns() - time.perf_counter_ns()
        # starting and leaving
        self.thread: threading.Thread | None = None  # the sending thread
        self.guard = Guard()
        self.gone = False
        self.ending = False  # the process ends
        self.opening = False  # a step's end may be opening a window, or putting a plan on
        self.exit: dict[str, Any] | None = None  # its goodbye, once everything before it waits to be sent
        self.left: list[str] = []  # what could not be removed
        self.hooks: list[Any] = []
        self.patches = Patches()
        self.finalizer: Any = None
        self.steps = Steps(self.tally)
        self.unlisted: Unlisted | None = None  # finds steps while no optimizer of torch steps
        # the parts
        self.outbox, self.wishes = Outbox(self.tally, self.epoch), Wishes(self.tally)
        self.optimizers = Optimizers()
        self.totals = Totals(torch, self.clock, self.optimizers, self.outbox)
        self.manager = Manager(torch, self.outbox, self.wishes, self.optimizers)
        self.windows = Windows(
            torch,
            self.clock,
            self.outbox,
            self.wishes,
            self.optimizers,
            self.manager,
            self.totals,
            self.guard.broke,
        )
        self.lookout = Lookout(torch, self.clock, self.windows, self.patches)
        self.bell = Bell()
        self.tally.ring = self.bell.ring
        self.link = Link(self.path, self.bell)
        self.sender = Sender(
            torch,
            self.epoch,
            self.link,
            self.outbox,
            self.wishes,
            self.windows,
            self.manager,
            self.totals,
        )
        self.markers = Markers(self.path)

    # -- coming ----------------------------------------------------------------------------------------------

    def launch(self) -> None:
        """Start in a process that has just imported torch."""
        why = too_old(self.torch)
        if why:
            return refuse(self.path, why)
        self._arm()
        self.manager.offload()
        if not silent():  # otherwise start when an optimizer steps
            self.lookout.launched()
            self._start()

    def attach(self) -> None:
        """Start in a running process. The hooks follow once no thread iterates over torch's tables."""
        self._start()

    def _start(self) -> None:
        self.bell.open()
        self.thread = threading.Thread(target=self._run, name="gmemtop", daemon=True)
        self.thread.start()

    def _arm(self) -> None:
        from multiprocessing import util

        from torch.optim import optimizer as hooks

        pre, post = counting(self.tally, self.clock, self._pre, self._post, self.caught)
        self.hooks = [
            hooks.register_optimizer_step_pre_hook(pre),
            hooks.register_optimizer_step_post_hook(post),
        ]
        self.patches.put(self.torch.autograd, "backward", functools.partial(around_backward, self))
        scalers = sys.modules.get("torch.amp.grad_scaler") or sys.modules.get("torch.cuda.amp.grad_scaler")
        if scalers is not None:
            self.patches.put(scalers.GradScaler, "update", functools.partial(around_update, self))
        util.register_after_fork(self, Agent._in_child)  # a weak reference: it goes away with the agent
        self._expect_the_end()

    def _expect_the_end(self) -> None:
        """Register a function for the end of the process. Unlike atexit, multiprocessing also calls it in its
        children."""
        from multiprocessing import util

        self.finalizer = util.Finalize(None, self._at_exit, exitpriority=100)

    # -- the guard -------------------------------------------------------------------------------------------

    def caught(self, error: BaseException) -> bool:
        """Disarm. Returns whether error is the program's own."""
        self.tally.wake()
        self.windows.stop()
        return self.guard.caught(error)

    def _let_go(self) -> None:
        """The agent is disarmed: leave the mode of an open window. Only its own thread can do that, at a
        step's end."""
        try:
            self.windows.let_go()
            self.manager.let_go()
        except Exception:
            pass

    # -- what torch calls ------------------------------------------------------------------------------------

    def _pre(self, optimizer: Optimizer, args: Any, kwargs: Any) -> tuple[Any, Any] | None:
        now = self.clock()
        if self.guard.dead:
            self._let_go()
            return None
        try:
            if self.thread is None:
                self._start()
            within = self.steps.inside() and nested()
            self.steps.follow(within)
            self.steps.optimizer_enters(optimizer, now, within)
            window = self.windows.here() if self.windows.open is not None else None
            if window is not None:
                window.entering_optimizer(optimizer)
            own = None
            if kwargs or len(args) > 1:  # perhaps a closure
                own = around_closure(
                    args, kwargs, functools.partial(in_closure, weakref.ref(self), weakref.ref(optimizer))
                )
            if self.manager.carrier is not None:
                self.manager.optimizer_enters(optimizer, own is not None)
            self.tally.spent += self.clock() - now
            return own
        except BaseException as e:
            if isinstance(e, self.torch.cuda.OutOfMemoryError):
                raise  # bringing state back ran out of memory: the step itself would have, too
            ours = not self.caught(e)
            self._let_go()
            if not ours:
                raise
            return None

    def _post(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        steps, now = self.steps, self.clock()
        if self.guard.dead:
            return self._let_go()
        try:
            steps.follow(self.tally.call is kwargs)
            outermost = steps.optimizer_leaves(optimizer, now)
            window = self.windows.here() if self.windows.open is not None else None
            if window is not None and not steps.optimizing():
                window.leaving_optimizer(optimizer)
            if not outermost:
                return
            if self.manager.carrier is not None:
                self.manager.optimizers_left()
            self.forget_unlisted()
            self._stepped(optimizer, now)
        except BaseException as e:
            ours = not self.caught(e)
            self._let_go()
            if not ours:
                raise

    def _stepped(self, optimizer: Optimizer, now: int) -> None:
        """An optimizer has stepped, not inside another one's step."""
        if self.steps.heard_again():
            self.outbox.say("", "steps")
        if self.optimizers.add(optimizer):
            self.totals.next_known = 0
        if self.steps.ends(optimizer):
            self.boundary(now, False)
        self.tally.spent += self.clock() - now

    def forget_unlisted(self) -> None:
        """Stop looking for steps of optimizers that torch does not know."""
        if self.unlisted is not None:
            self.unlisted.hook.remove()
            self.unlisted = None
            self.tally.ends_with(None)

    def unlisted_stepped(self, optimizer: Unlisted, module: Module, inputs: Any) -> None:
        """A module is entered, and a step of an optimizer that torch does not know has ended. If a window or
        a plan begins here, we tell it about the module, since torch had already collected its hooks."""
        if self.guard.dead:
            return self._let_go()
        try:
            if self.thread is None:
                self._start()
            window, carrier = self.windows.open, self.manager.carrier
            # a carrier whose hook runs before ours has entered the module; the end of the step undoes that
            entered = isinstance(carrier, Carrier) and carrier.region.depth > 0
            self._stepped(optimizer, self.clock())
            if self.windows.open is not None and self.windows.open is not window:
                self.windows.open.entering(module, inputs)
            now = self.manager.carrier
            if isinstance(now, Carrier) and (now is not carrier or entered):
                now.region.enter(module, inputs)
        except BaseException as e:
            ours = not self.caught(e)
            self._let_go()
            if not ours:
                raise

    # -- a step's end ----------------------------------------------------------------------------------------

    def boundary(self, now: int, skipped: bool) -> None:
        steps, windows, manager = self.steps, self.windows, self.manager
        tally, window, totals = self.tally, windows.open, self.totals
        if os.getpid() != self.pid:
            return self._forked()
        self.lookout.end()
        if window is not None:
            window.next()
        carried = manager.step_ended(now, self.outbox.produced, window is not None)
        if tally.begin is not None:
            figures, finer = totals.step_ended(now, self.sender.welcome)
            self.outbox.step(
                (
                    self.outbox.produced,
                    self.epoch + tally.begin,
                    self.epoch + now,
                    tally.forward(now),
                    tally.backward,
                    tally.optimizer,
                )
                + figures
                + (tally.spent, 1 if skipped else 0)
                + carried
                + finer
                + manager.worked
            )
            if tally.armed or self.outbox.produced == 1:
                tally.announce()  # a viewer that has just connected sees the first step at once
            if settings.first and self.outbox.produced == WARM and not self.wishes.want:
                # a short program would end before a viewer asks
                self.wishes.want.append((self.wishes.how, settings.first, False, "", []))
        windows.step_ended(tally.begin, now)
        if windows.open is None:
            self.opening = True  # before these ask whether the agent leaves
            try:
                manager.manage()
                windows.begin(now)
            finally:
                self.opening = False
        steps.next(now, skipped)
        if window is not None and window is not windows.open and window.crossings and not manager.managed:
            steps.end_elsewhere(window.crossings.bytes, self.optimizers.alive())
        every = self.wishes.every
        left = every - tally.produced % every if every else 1 << 62
        tally.rest(now + REST, left)  # before we check: a wish that comes meanwhile ends it
        if not self._calm():
            tally.wake()

    def _calm(self) -> bool:
        """Whether the next steps only need to be counted."""
        wishes, manager = self.wishes, self.manager
        return (
            self.windows.open is None
            and self.unlisted is None
            and manager.calm()
            and self.tally.begin is not None
            and self.outbox.produced > WARM
            and not (wishes.want or wishes.later or wishes.plans or wishes.leaving or self.guard.dead)
        )

    # -- the sending thread ----------------------------------------------------------------------------------

    def _run(self) -> None:
        wishes, windows, link = self.wishes, self.windows, self.link
        alone, wait = 0, TICK
        try:
            if not self.hooks and not self.launched:
                while importing(self.torch):
                    time.sleep(0.02)
                while calling_hooks():
                    time.sleep(0.001)
                self._arm()
            self.outbox.ring.open()
            self.markers.put()
            while not (self.guard.dead or wishes.leaving and not self._inside() or self.exit is not None):
                if link.sock is None and not self.sender.connect():
                    alone += 1
                    if alone > ALONE and not self.sender.met and not self.launched:
                        wishes.leaving = True
                    self.bell.sleep(1000)
                else:
                    begin = time.thread_time()
                    self.sender.exchange(wait)
                    self.lookout.look(self.tally.begin, self.outbox.produced, windows.lasted)
                    wait = min(max(TICK, int(1000 * SHARE * (time.thread_time() - begin))), SLOWEST)
        except BaseException as e:  # on this thread nobody else would catch one that is no Exception
            self.caught(e)
            self.sender.sending = None
            windows.drop()
        try:
            inside = self.guard.dead and not self.ending and self._inside()
            if inside:
                self._last_word()
                while not self.ending and self._inside():
                    time.sleep(0.02)  # until a step ends: its thread leaves the window's mode
            try:
                if not self.ending:
                    self._undo()
            except Exception as e:
                self.caught(e)
            if not inside:
                self._unmark()  # first, since a viewer that reads the goodbye may attach again at once
                self._last_word()
        except Exception:
            pass
        finally:
            self.gone = True
            self._unmark()
            if not self.ending:
                windows.drop()
                MODULE_NAMES.forget()
                self.tally.armed = False
                self.outbox.ring.close()
                self.bell.close()  # not at exit: an ending process may still ring it
            try:
                link.close()
            except OSError:
                pass
            self.totals.close()
            windows.ready.clear()
            self.thread = None

    def _inside(self) -> bool:
        """Whether something is installed, or is being installed, that only its own thread can remove. What
        begins to install after the agent was told to leave sees that, and installs nothing: so look at
        opening first, or what has just been installed is missed."""
        return self.opening or self.windows.open is not None or self.manager.carrier is not None

    def _unmark(self) -> None:
        threading.current_thread().name = "gmemtop, leaving"
        self.markers.remove()

    def _last_word(self) -> None:
        if self.guard.dead and self.guard.why:
            self.outbox.say(Says("agent_failed", self.guard.why), "disarmed")
        end = self.exit or {
            "reason": "detached" if self.wishes.leaving else "disarmed",
            "detail": self.guard.why,
            "says": told(self.guard.why),
        }
        if self.left:
            end = dict(end, left=self.left, left_says=[told(what) for what in self.left])
        # An ending process waits for this: its last window may be large, and shows why it died.
        self.sender.last_word(end, LAST if self.ending else 5.0)

    def _undo(self) -> None:
        """Remove everything of the agent that torch or Python holds."""
        self.guard.dead = True
        self.tally.wake()
        time.sleep(0.005)  # a fresh turn of the interpreter lock: enough time to check and remove
        _wait(lambda: not calling_hooks(), 5, 0.005)
        # until the next step, at most a minute
        _wait(lambda: not getattr(self.windows.open, "bound", False), 60, 0.1)
        for hook in self.hooks:
            hook.remove()
        window = self.windows.open
        if window is not None:
            window.stop()
            window.unhook()
        self.lookout.end()
        self.left += [Says("wrapped_since", name) for name in self.patches.undo()]
        self.hooks, self.unlisted = [], None
        served = self.manager.settle(self.windows.lasted)
        self.left += [served] if served else []
        if self.finalizer is not None:
            self.finalizer.cancel()

    # -- children and the end --------------------------------------------------------------------------------

    def _in_child(self) -> None:
        self.windows.stop()

    def _forked(self) -> None:
        """A forked child trains: it gets its own agent, with its own connection."""
        self.link.close()  # the parent's stays open
        self.totals.close()
        self.outbox.ring.close()
        self.bell.close()
        window, kept = self.windows.open, (self.hooks, self.patches, self.manager.unplanned)
        if window is not None:
            window.stop()
            if window.on_top():
                window.end()
        self.manager.off()
        if self.unlisted is not None:
            self.unlisted.hook.remove()
        self.tally.reset(None)
        self._make()
        self.hooks, self.patches, self.manager.unplanned = kept
        self._expect_the_end()
        self.manager.offload()

    def _hand_over(self) -> None:
        """The process ends: leave the sending thread everything that the viewer should still get, and then
        the goodbye. The thread says goodbye as soon as it sees one, and nothing goes after it."""
        try:
            window = self.windows.here()
            if window is not None and not self.guard.dead:
                window.steps.append((self.tally.begin or window.start, self.clock()))
                self.windows.close(True)
            if not self.guard.dead:
                self.lookout.last(self.outbox.produced)
            self.manager.off()
        finally:
            self.exit = _goodbye()

    def _at_exit(self) -> None:
        try:
            if self.gone or self.thread is None or os.getpid() != self.pid:
                return
            self.ending = True
            if self.manager.carrier is not None:
                clear_leftovers(self.torch)
            self._hand_over()
            self.bell.ring()
            thread, last = self.thread, time.monotonic() + LAST
            thread.join(1.0)
            # only while a viewer is connected: the sending thread gives up on one that does not read
            while thread.is_alive() and self.link.sock is not None and time.monotonic() < last:
                thread.join(0.1)
        except Exception:
            pass


def _goodbye() -> dict[str, Any]:
    """Why the process ends: with what exception, if any."""
    last = getattr(sys, "last_value", None)
    return {
        "reason": "exit" if last is None else type(last).__name__,
        "detail": "" if last is None else str(last)[:500],
    }


def _wait(done: Callable[[], bool], longest: float, nap: float) -> None:
    """Wait until something is done, at most `longest` seconds."""
    late = time.monotonic() + longest
    while not done() and time.monotonic() < late:
        time.sleep(nap)
