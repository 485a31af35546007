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
import json
import os
import signal
import socket
import struct
import sys
import threading
import time
import types
import weakref
from typing import TYPE_CHECKING, Any, Callable

from .compat import dispatch_modes, graph_task, profiler_enabled, records_history, step_hooks
from .lines import Addresses
from .manage import Manager
from .ops import Ops
from .patch import Patches
from .recorded import RECORDED
from .send import LAST
from .settings import settings
from .totals import NOT_TAKEN, Totals, foreign
from .wire import BYE, REFUSED, VERSION

if TYPE_CHECKING:
    from .kinds import Optimizer, Wish
    from .window import Window

MAX_WINDOWS = 2  # that wait to be sent
# backward passes without a step after which that is said: more than gradients are accumulated over
UNSTEPPED = 200
ELSEWHERE = 64  # steps of other optimizers after which the first is taken to be out of use
WARM = 2  # steps before those that are described unasked
OLDEST = 2, 2  # of torch: what the agent calls came with it


class _Step:
    """Sums of the step that is running."""

    __slots__ = ("begin", "backward", "optimizer", "spent", "stepped")

    def __init__(self, begin: int | None) -> None:
        self.begin, self.backward, self.optimizer, self.spent, self.stepped = begin, 0, 0, 0, 0


class Agent(Manager, Totals):
    def __init__(self, path: str, launched: bool) -> None:
        Manager.__init__(self, path)
        self.torch, self.launched = sys.modules["torch"], launched
        self.clock = time.perf_counter_ns
        self.epoch = time.time_ns() - time.perf_counter_ns()
        self.hooks: list[Any] = []
        self.patches = Patches()
        self.finalizer: Any = None
        self.first: weakref.ref[Any] | None = None
        self.others = 0
        self.optimizers: list[weakref.ref[Any]] = []
        self.stack: list[int] = []
        self.opt_start = 0
        self.in_backward: set[int] = set()
        self.unstepped = 0
        self.index = 0
        self.step = _Step(self.clock() if launched else None)
        self.window: Any = None
        self.window_thread = 0
        self.described = 0
        self.addresses = Addresses()
        self._no_totals()

    # -- coming ----------------------------------------------------------------------------------------------

    def launch(self) -> None:
        """Begin in a process that has just imported torch."""
        why = _too_old(self.torch)
        if why:
            return _refuse(self.path, why)
        self._arm()
        self._offload()
        if not _silent():  # or until it steps an optimizer
            self._start()

    def attach(self) -> None:
        """Begin in a process that runs: the hooks come once no thread is inside of an optimizer's step."""
        self._start()

    def _arm(self) -> None:
        from multiprocessing import util

        from torch.optim import optimizer as hooks

        self.hooks = [
            hooks.register_optimizer_step_pre_hook(self._pre),
            hooks.register_optimizer_step_post_hook(self._post),
        ]
        self.patches.put(self.torch.autograd, "backward", self._backward)
        scalers = sys.modules.get("torch.amp.grad_scaler") or sys.modules.get("torch.cuda.amp.grad_scaler")
        if scalers is not None:
            self.patches.put(scalers.GradScaler, "update", self._update)
        util.register_after_fork(self, Agent._in_child)  # by a weak reference: it goes with the agent
        self._expect_the_end()

    def _expect_the_end(self) -> None:
        """Be called when the process ends. Unlike atexit, this is called in the children of
        multiprocessing as well."""
        from multiprocessing import util

        self.finalizer = util.Finalize(None, self._at_exit, exitpriority=100)

    def _importing(self) -> bool:
        """Whether torch is being imported: two threads that import parts of it wait for each other, and
        Python ends that by giving one of them half a module."""
        torch = sys.modules.get("torch")
        if torch is not self.torch:
            raise ImportError("the program failed to import torch")
        return _initializing(torch)

    def _stepping(self) -> bool:
        """Whether a thread other than this one is inside of an optimizer's step, where torch goes through
        its tables of hooks."""
        here = threading.get_ident()
        for ident, top in list(sys._current_frames().items()):
            frame: types.FrameType | None = top
            while frame is not None and ident != here:
                if frame.f_code.co_filename.endswith(os.path.join("torch", "optim", "optimizer.py")):
                    return True
                frame = frame.f_back
        return False

    # -- the guard -------------------------------------------------------------------------------------------

    def _caught(self, error: BaseException) -> bool:
        """Disarm. Returns whether error is the program's own: raised by a signal's handler that ran while
        the agent did."""
        self.dead = True
        self.why = self.why or "%s: %s" % (type(error).__name__, error)
        if self.window is not None:
            self.window.stopped = True
        if not isinstance(error, Exception):
            return True
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

    def _broke(self, error: BaseException) -> None:
        if self._caught(error):
            raise error

    def _let_go(self) -> None:
        """Disarmed: leave the mode of a window that was open, which only its own thread can, and at a
        step's end."""
        window = self.window
        try:
            if window is not None and threading.get_ident() == self.window_thread and window.leave():
                window.unhook()
                self.window = None
            if self.carrier is not None and self.carrier.thread in (0, threading.get_ident()):
                self._off()
        except Exception:
            pass

    # -- what torch calls ------------------------------------------------------------------------------------

    def _pre(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        if self.dead:
            return self._let_go()
        try:
            now = self.clock()
            if os.getpid() != self.pid:
                self._forked()
            if self.thread is None:
                self._start()
            k = id(optimizer)
            if k in self.stack:  # it left by an exception the last time
                del self.stack[self.stack.index(k) :]
            if not self.stack:
                self.opt_start = now
            self.stack.append(k)
            if self.window is not None and threading.get_ident() == self.window_thread:
                self.window.entering_optimizer(optimizer)
            self.step.spent += self.clock() - now
        except BaseException as e:
            ours = not self._caught(e)
            self._let_go()
            if not ours:
                raise

    def _post(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        if self.dead:
            return self._let_go()
        try:
            now = self.clock()
            k = id(optimizer)
            if k in self.stack:
                del self.stack[self.stack.index(k) :]
            if self.stack:  # an optimizer inside of another
                return
            self.step.optimizer += now - self.opt_start
            self.step.stepped += 1
            if self.unstepped >= UNSTEPPED:
                self._say("", "steps")
            self.unstepped = 0
            if self.window is not None and threading.get_ident() == self.window_thread:
                self.window.leaving_optimizer(optimizer)
            if not any(o() is optimizer for o in self.optimizers):
                self.optimizers = [o for o in self.optimizers if o() is not None] + [weakref.ref(optimizer)]
                self.next_known = 0
            first = None if self.first is None else self.first()
            if first is None or self.others >= ELSEWHERE:
                first, self.first = optimizer, weakref.ref(optimizer)
            if first is optimizer:
                self.others = 0
                self._boundary(now, False)
            else:
                self.others += 1
            self.step.spent += self.clock() - now
        except BaseException as e:
            ours = not self._caught(e)
            self._let_go()
            if not ours:
                raise

    def _backward(self, original: Callable[..., Any]) -> Callable[..., Any]:
        # torch lists its functions once, for good, when something first asks which can be overridden: what is
        # found there then must not keep the agent.
        there, clock, task = weakref.ref(self), self.clock, graph_task(self.torch)

        @functools.wraps(original)
        def backward(*args: Any, **kwargs: Any) -> Any:
            agent, here = there(), threading.get_ident()
            if agent is None or agent.dead or here in agent.in_backward or task() != -1:
                return original(*args, **kwargs)
            # Another thread's backward pass says nothing of the ops of the thread that is described.
            window, begin = agent.window if here == agent.window_thread else None, clock()
            agent.in_backward.add(here)
            if window is not None:
                window.rooting = True
            try:
                return original(*args, **kwargs)
            finally:
                agent.in_backward.discard(here)
                if window is not None:
                    window.rooting = False
                agent.step.backward += clock() - begin
                agent.unstepped += 1
                if agent.unstepped == UNSTEPPED:
                    agent._say(
                        "%d backward passes and no step of an optimizer: a row is a step, and ends when one "
                        "of torch.optim's has stepped. An optimizer that is "
                        "not torch.optim's is not seen, nor is one that torch.compile of torch 2.2 has "
                        "compiled; a newer torch shows that one" % UNSTEPPED,
                        "steps",
                    )

        return backward

    def _update(self, original: Callable[..., Any]) -> Callable[..., Any]:
        there = weakref.ref(self)

        @functools.wraps(original)
        def update(*args: Any, **kwargs: Any) -> Any:
            agent, out = there(), original(*args, **kwargs)
            if agent is not None and not agent.dead:
                try:
                    now = agent.clock()
                    if (
                        agent.step.stepped == 0
                        and agent.first is not None
                        and agent.step.begin is not None
                        and os.getpid() == agent.pid
                    ):
                        agent._boundary(now, True)  # the scaler met an infinity and skipped the optimizer
                    agent.step.stepped = 0
                    agent.step.spent += agent.clock() - now
                except BaseException as e:
                    if agent._caught(e):
                        raise
            return out

        return update

    # -- a step's end ----------------------------------------------------------------------------------------

    def _boundary(self, now: int, skipped: bool) -> None:
        step, carried = self.step, self._step_ended()
        if step.begin is not None:
            totals, finer = self._take_totals(now) if now >= self.next_totals else NOT_TAKEN
            if now >= self.next_known:
                self._take_known(now)
            self.steps.append(
                (
                    self.index,
                    self.epoch + step.begin,
                    self.epoch + now,
                    max(now - step.begin - step.backward - step.optimizer, 0),
                    step.backward,
                    step.optimizer,
                )
                + totals
                + self.known
                + (step.spent, 1 if skipped else 0)
                + carried
                + finer
                + self.worked
            )
            # a step that is described lasts longer than those that follow
            if self.window is None or self.every == 1:
                # and so may any one
                self.lasted = min(now - step.begin, self.lasted + self.lasted // 4 if self.lasted else now)
            self.produced += 1
            self.index += 1
            if self.produced == 1:
                self._ring()  # who has just come sees it at once
            if settings.first and self.index == WARM and not self.want:
                # a short program would be over before a viewer has asked
                self.want.append((self.how, settings.first, False, "", []))
        window = self.window
        if window is not None and threading.get_ident() == self.window_thread:
            if step.begin is not None:
                window.steps.append((step.begin, now))
            if (
                window.stopped
                or self.leaving
                or len(window.steps) >= self.described
                and not self._goes_on(window)
            ):
                self._close(False)
        if self.window is None and (self.orders or self.unplanned or self.carrier is not None):
            self._manage()
        if (
            self.window is None
            and not self.leaving
            and (self.want or (self.every > 0 and self.index % self.every == 0))
        ):
            self._open(now)
        self.step = _Step(now)
        self.step.stepped = 0 if skipped else 1

    # -- windows ---------------------------------------------------------------------------------------------

    def _open(self, now: int) -> None:
        torch, refusal = self.torch, None
        if self.unfinished:
            return  # the last history is still to be taken out
        if len(self.ready) >= MAX_WINDOWS:
            if not self.want:
                self._lose("windows", 1, "the viewer had not taken the ones before")
            return
        asked = self._asked()
        how, want, saves, library, orders = asked or (self.how, 1, False, "", [])
        if asked:
            self.addresses.look_again = 0
        if how == "ops":
            other = (
                "torch.compile is in use"
                if self._compiled()
                else "the program has a dispatch mode of its own"
                if dispatch_modes(torch) > 0
                else ""
            )
            if other:
                how = self._elsewise(other, orders)
                orders = []
                if how == "profile" and not self.every:
                    return  # whoever wants that asks again
        if how == "ops" and saves and self._unplannable():
            return self._not_opened(self._unplannable(), how, orders)
        if how == "history":
            device = self._of_parameters()
            if device is None or device.type != "cuda":
                refusal = "the allocator keeps no history of the CPU's memory: describe the ops instead"
            elif (another := foreign(torch)) is not None:
                refusal = "the program uses %s, which keeps no history: %s, or capture ops" % (
                    another,
                    "leave torch's own in place"
                    if "pluggable" in another
                    else "unset backend in PYTORCH_CUDA_ALLOC_CONF",
                )
            elif records_history(torch):
                refusal = (
                    "the program records the allocator's history itself, and one recording would end the "
                    "other"
                )
        elif how == "profile" and profiler_enabled(torch):
            refusal = "the program runs torch's profiler itself, and there is only one"
        if refusal is not None:
            self.every = 0
            return self._not_opened(refusal, how, orders)
        begin = self.clock()
        optimizers = [o for o in (r() for r in self.optimizers) if o is not None]
        self.window = (
            Ops(torch, self.clock, now, self.addresses, optimizers, self._broke)
            if how == "ops"
            else RECORDED[how](torch, now, library, self._of_parameters())
        )
        self.window_thread, self.described = threading.get_ident(), max(want, 1)
        self.window.how, self.window.index, self.window.pools, self.window.orders = (
            how,
            self.index,
            self.pools,
            orders,
        )
        refusal = self.window.begin()
        if refusal:
            return self._not_opened(refusal, how, orders)
        if how == "ops":
            self._watch(self.window, saves)
        self.window.cost += self.clock() - begin

    def _asked(self) -> Wish | None:
        """What is to be captured now: all at once that was asked for by the means of the first who asked;
        None where nothing is."""
        first: Wish | None = None
        others: list[Wish] = []
        while True:
            try:
                # which the sending thread may empty meanwhile
                how, steps, saves, library, orders = self.want.popleft()
            except IndexError:
                self.want.extend(others)
                return first
            if first is None:
                first = how, steps, saves, library, orders
            elif first[0] == how and first[3] == library:
                first = how, max(steps, first[1]), saves or first[2], library, first[4] + orders
            else:
                others.append((how, steps, saves, library, orders))

    def _elsewise(self, why: str, orders: list[int]) -> str:
        """Take another means from now on, where a description would show other code than what trains, and
        say so."""
        device = self._of_parameters()
        self.how, self.told_who = (
            "history" if device is not None and device.type == "cuda" else "profile",
            False,
        )
        text = (
            "%s, and steps that are watched op by op would run in another way: %s shows what is allocated "
            "instead, though not who uses it"
            % (why, "the allocator's history" if self.how == "history" else "torch's profiler")
        )
        self._say(text, "ops")
        self._answer(orders, REFUSED, "not_captured", text)
        self._say("", "asked")
        return self.how

    def _close(self, partial: bool) -> None:
        window = self.window
        if not window.on_top():
            window.stopped = True  # a mode of the program's own stands inside of ours: wait for it to leave
            return
        begin = self.clock()
        window.look([o for o in (r() for r in self.optimizers) if o is not None])
        self._unwatch()
        window.end()
        self.window = None
        if window.how == "history" and self.every == 1 and not partial and not self.leaving:
            window.take()  # so that the next begins at once: the request that fails must be in one of them
        window.cost += self.clock() - begin
        window.costs = self._costs(window)
        if self.leaving and not partial:
            self._finished(window)
            return
        if window.how == "ops" and self._compiled():
            text = (
                "torch.compile came into use while a step was described: the description would show it "
                "eager and is thrown away"
            )
            self._say(text, "ops")
            self._answer(window.orders, REFUSED, "not_captured", text)
            return
        if window.graphs:
            self._say(
                "%d CUDA graphs were replayed: what runs inside of them is not seen as ops" % window.graphs,
                "graphs",
            )
        self._say("", "asked")
        window.partial = partial
        if window.how == "history" and window.taken is None:
            self.unfinished = window
        self.ready.append(window)

    def _goes_on(self, window: Window) -> bool:
        """Whether a history of every step stays open for another one: the viewer has not taken those
        before, so that there is no room for a next."""
        return window.how == "history" and self.every == 1 and len(self.ready) >= MAX_WINDOWS - 1

    # -- children --------------------------------------------------------------------------------------------

    def _in_child(self) -> None:
        if self.window is not None:
            self.window.stopped = True

    def _forked(self) -> None:
        """A child of fork trains: it speaks for itself, over a connection of its own."""
        sock, statm = self.sock, self.statm
        if sock is not None:
            sock.close()  # the parent's stays open
        for fd in (statm,) + (self.bell or ()):
            if fd >= 0:
                os.close(fd)
        window, kept = self.window, (self.hooks, self.patches, self.unplanned)
        if window is not None:
            window.stopped = True
            if window.on_top():
                window.end()
        self._off()
        self.__init__(self.path, self.launched)  # type: ignore[misc]
        self.hooks, self.patches, self.unplanned = kept
        self.step = _Step(None)
        self._expect_the_end()
        self._offload()

    # -- going -----------------------------------------------------------------------------------------------

    def _at_exit(self) -> None:
        try:
            if self.gone or self.thread is None or os.getpid() != self.pid:
                return
            last = getattr(sys, "last_value", None)
            self.exit = {
                "reason": "exit" if last is None else type(last).__name__,
                "detail": "" if last is None else str(last)[:500],
            }
            window = self.window
            if window is not None and not self.dead and threading.get_ident() == self.window_thread:
                window.steps.append((self.step.begin or window.start, self.clock()))
                self._close(True)
            self._off()
            self._ring()
            thread, last = self.thread, time.monotonic() + LAST
            thread.join(1.0)
            # a viewer is there, and _part gives up one that does not read
            while thread.is_alive() and self.sock is not None and time.monotonic() < last:
                thread.join(0.1)
        except Exception:
            pass

    def _undo(self) -> None:
        """Take everything away that torch or Python holds of the agent. On the sending thread."""
        self.dead = True
        for _ in range(1000):
            # a fresh turn of the interpreter lock: long enough for the look and the removal
            time.sleep(0.005)
            if not self._stepping():
                break
        for _ in range(600):  # until the next step: a minute at most
            if not getattr(self.window, "bound", False):
                break
            time.sleep(0.1)
        for hook in self.hooks:
            hook.remove()
        if self.window is not None:
            self.window.stopped = True
            self.window.unhook()
        self.left += [name + ", which the program wrapped after us" for name in self.patches.undo()]
        self.hooks = []
        self._settle()
        if self.finalizer is not None:
            self.finalizer.cancel()


def _too_old(torch: Any) -> str:
    """Why nothing begins under this torch, "" where nothing speaks against it: of one that is being
    imported, or calls itself something else, nothing is known."""
    version = str(getattr(torch, "__version__", ""))
    try:
        if tuple(int(n) for n in version.split(".")[:2]) >= OLDEST:
            return ""
    except ValueError:
        return ""
    return (
        "torch %s is too old: %d.%d is the oldest that is watched from inside: update torch, or see what a "
        "GPU's driver allocates for it with gmemtop attach --probes" % ((version,) + OLDEST)
    )


def _initializing(module: Any) -> bool:
    """Whether a module is being imported."""
    return bool(getattr(getattr(module, "__spec__", None), "_initializing", False))


def _silent() -> bool:
    """Whether this process is none that trains: a child of multiprocessing (a data loader's worker, a
    compiler's) or a launcher."""
    import multiprocessing

    main = getattr(sys.modules.get("__main__"), "__spec__", None)
    return (
        multiprocessing.parent_process() is not None
        or getattr(multiprocessing.current_process(), "_inheriting", False)
        or (main is not None and main.name.startswith("torch."))
        or "torchrun" in sys.argv[:1]
    )


def reach(path: str) -> None:
    """Begin in a process to which the environment may not have brought the agent, unless it is still
    importing torch, would be silent or has an agent. Whoever asks asks again."""
    torch = sys.modules.get("torch")
    if torch is None or _initializing(torch) or _silent():
        return
    if not any(type(getattr(hook, "__self__", None)).__name__ == "Agent" for hook in step_hooks()):
        attach(path)


def attach(path: str) -> None:
    """Begin in a running process, on whatever thread this runs."""
    if "torch" not in sys.modules:
        _refuse(
            path,
            "torch is not loaded in this process: attach once the program has imported it, or name the "
            "process that trains",
        )
    elif _too_old(sys.modules["torch"]):
        _refuse(path, _too_old(sys.modules["torch"]))
    elif any(t.name == "gmemtop" for t in threading.enumerate()):
        _refuse(
            path,
            "an agent lives in this process already, and is not found from here: watch it as the user who "
            "does so, with the same XDG_RUNTIME_DIR",
            "agent_lives",
        )
    else:
        Agent(path, False).attach()


def _refuse(path: str, why: str, code: str = "") -> None:
    payload = json.dumps(
        {"version": VERSION, "pid": os.getpid(), "reason": "refused", "detail": why, "refusal": code}
    ).encode()
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.settimeout(0.2)
        sock.connect(path)
        sock.sendall(struct.pack("<IB", len(payload) + 1, BYE) + payload)
    except OSError:
        pass
    finally:
        sock.close()
