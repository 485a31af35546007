"""The agent itself: it lives in a training process, tells a viewer of every step, and captures steps when
asked.

torch calls global hooks before and after the step of every optimizer, also of optimizers that exist already.
A training step ends where the first optimizer of the period has stepped. Everything else follows from three
rules.

Training is sacred. Every way from torch into the agent is guarded: if anything goes wrong, the agent disarms
itself for good and training goes on. An exception raised by a signal handler of the program while the agent
happened to run belongs to the program and is passed on. The training thread takes no lock, writes to no
socket and waits for nothing: it appends to a bounded deque, and a daemon thread sends what it finds there
about twice a second. The agent measures what it costs; whatever costs more than 1/400 of the time between two
of its turns gets fewer turns.

Things change in their own thread. A dispatch mode belongs to a thread, so the hook that ends a step opens and
closes windows. torch's tables of hooks must not change while a thread iterates over them, so hooks come and
go while no thread is inside an optimizer's step.

It can go. Detaching removes the hooks, the wrapped functions, the thread, the socket, the files and the
finalizer. That is why os.register_at_fork is not used: what it is given can never be taken back. A forked
child notices by its process number.
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
from .link import Bell, Link, refuse
from .lookout import Lookout
from .manage import Manager
from .markers import Markers
from .optimizers import Optimizers
from .outbox import Outbox
from .patch import Patches
from .process import importing, nested, silent, stepping, too_old
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

WARM = 2  # steps before those that are described unasked
# milliseconds between two looks at what there is to send: SHARE times what the last one took, within these
TICK, SLOWEST = 500, 2000
LAST = 60.0  # seconds that a process which ends waits at most for a viewer that reads
# nanoseconds for which steps are only counted; the step after them reads memory, does what viewers asked for,
# and notices a fork
REST = 250000000
ALONE = 60  # seconds after which an agent that was brought in and has met nobody goes


class Agent:
    """Hears of steps, and begins and ends all that the agent is made of."""

    def __init__(self, path: str, launched: bool) -> None:
        self.path, self.launched = path, launched
        self.clock = time.perf_counter_ns
        self.tally = Tally(self.clock() if launched else None)
        self._make()

    def _make(self) -> None:
        """Make all that belongs to one process."""
        self.torch = torch = sys.modules["torch"]
        self.pid = os.getpid()
        self.epoch = time.time_ns() - time.perf_counter_ns()
        # coming and going
        self.thread: threading.Thread | None = None  # the sending thread
        self.guard = Guard()
        self.gone = False
        self.exit: dict[str, Any] | None = None  # the last word of a process that ends
        self.left: list[str] = []  # what could not be taken away
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
        """Begin in a process that has just imported torch."""
        why = too_old(self.torch)
        if why:
            return refuse(self.path, why)
        self._arm()
        self.manager.offload()
        if not silent():  # or until it steps an optimizer
            self.lookout.launched()
            self._start()

    def attach(self) -> None:
        """Begin in a process that runs: the hooks come once no thread is inside of an optimizer's step."""
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
        util.register_after_fork(self, Agent._in_child)  # by a weak reference: it goes with the agent
        self._expect_the_end()

    def _expect_the_end(self) -> None:
        """Be called when the process ends. Unlike atexit, this is called in the children of
        multiprocessing as well."""
        from multiprocessing import util

        self.finalizer = util.Finalize(None, self._at_exit, exitpriority=100)

    # -- the guard -------------------------------------------------------------------------------------------

    def caught(self, error: BaseException) -> bool:
        """Disarm. Returns whether error is the program's own."""
        self.tally.wake()
        self.windows.stop()
        return self.guard.caught(error)

    def _let_go(self) -> None:
        """Disarmed: leave the mode of a window that was open, which only its own thread can, and at a
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
            if kwargs or len(args) > 1:  # a closure, perhaps
                own = around_closure(
                    args, kwargs, functools.partial(in_closure, weakref.ref(self), weakref.ref(optimizer))
                )
            if self.manager.carrier is not None:
                self.manager.optimizer_enters(optimizer, own is not None)
            self.tally.spent += self.clock() - now
            return own
        except BaseException as e:
            if isinstance(e, self.torch.cuda.OutOfMemoryError):
                raise  # of state that is brought back: the step itself would have met it
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
        """An optimizer has stepped, and not within the step of another."""
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
        """A module is entered, and a step of an optimizer that torch does not know has ended. A window or a
        plan that begins here hears of the module from us: torch had already collected its hooks."""
        if self.guard.dead:
            return self._let_go()
        try:
            if self.thread is None:
                self._start()
            window, carrier = self.windows.open, self.manager.carrier
            # a carrier whose hook runs before ours has entered the module, and the step's end undoes that
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
        carried = manager.step_ended(now, self.outbox.produced)
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
            if self.outbox.produced == 1:
                self.bell.ring()  # who has just come sees it at once
            if settings.first and self.outbox.produced == WARM and not self.wishes.want:
                # a short program would be over before a viewer has asked
                self.wishes.want.append((self.wishes.how, settings.first, False, "", []))
        windows.step_ended(tally.begin, now)
        if windows.open is None:
            manager.manage()
            windows.begin(now)
        steps.next(now, skipped)
        if window is not None and window is not windows.open and window.crossings and not manager.managed:
            steps.end_elsewhere(window.crossings.bytes, self.optimizers.alive())
        every = self.wishes.every
        left = every - tally.produced % every if every else 1 << 62
        tally.rest(now + REST, left)  # before we look: a wish that comes meanwhile ends it
        if not self._calm():
            tally.wake()

    def _calm(self) -> bool:
        """Whether the next steps need no more than to be counted."""
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
                while stepping():
                    time.sleep(0.001)
                self._arm()
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
        except BaseException as e:  # on this thread nobody else would hear of one that is no Exception
            self.caught(e)
            self.sender.sending = None
            windows.drop()
        try:
            inside = self.guard.dead and self.exit is None and self._inside()
            if inside:
                self._last_word()
                while self.exit is None and self._inside():
                    time.sleep(0.02)  # until a step ends, on whose thread the window's mode is left
            try:
                if self.exit is None:
                    self._undo()
            except Exception as e:
                self.caught(e)
            if not inside:
                self._unmark()  # a viewer that reads the goodbye may attach again at once
                self._last_word()
        except Exception:
            pass
        finally:
            self.gone = True
            self._unmark()
            if self.exit is None:
                windows.drop()
                self.bell.close()  # a process that ends may ring still
            try:
                link.close()
            except OSError:
                pass
            self.totals.close()
            windows.ready.clear()
            self.thread = None

    def _inside(self) -> bool:
        """Whether something stands in the program that only its own thread can take away."""
        return self.windows.open is not None or self.manager.carrier is not None

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
        # The process waits for this where it ends: its last window may be large, and says what it died of.
        self.sender.last_word(end, 5.0 if self.exit is None else LAST)

    def _undo(self) -> None:
        """Take everything away that torch or Python holds of the agent."""
        self.guard.dead = True
        self.tally.wake()
        time.sleep(0.005)  # a fresh turn of the interpreter lock: long enough for the look and the removal
        _wait(lambda: not stepping(), 5, 0.005)
        # until the next step: a minute at most
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
        """A child of fork trains: it speaks for itself, over a connection of its own."""
        self.link.close()  # the parent's stays open
        self.totals.close()
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

    def _at_exit(self) -> None:
        try:
            if self.gone or self.thread is None or os.getpid() != self.pid:
                return
            last = getattr(sys, "last_value", None)
            self.exit = {
                "reason": "exit" if last is None else type(last).__name__,
                "detail": "" if last is None else str(last)[:500],
            }
            window = self.windows.here()
            if window is not None and not self.guard.dead:
                window.steps.append((self.tally.begin or window.start, self.clock()))
                self.windows.close(True)
            if not self.guard.dead:
                self.lookout.last(self.outbox.produced)
            self.manager.off()
            self.bell.ring()
            thread, last = self.thread, time.monotonic() + LAST
            thread.join(1.0)
            # a viewer is there, and one that does not read is given up
            while thread.is_alive() and self.link.sock is not None and time.monotonic() < last:
                thread.join(0.1)
        except Exception:
            pass


def _wait(done: Callable[[], bool], longest: float, nap: float) -> None:
    """Wait until something is done, so many seconds at most."""
    late = time.monotonic() + longest
    while not done() and time.monotonic() < late:
        time.sleep(nap)
