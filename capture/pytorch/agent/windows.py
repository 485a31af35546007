"""Opens and closes windows at the end of a step, on the training thread. At most one is open."""

from __future__ import annotations

import collections
import threading
from typing import TYPE_CHECKING, Any, Callable

from .compat import compiled_graphs, dispatch_modes, profiler_enabled, records_history
from .costs import carrying_costs
from .manage import unplannable
from .ops import Ops
from .recorded import RECORDED
from .region import COMPILED
from .says import Says, why_of
from .totals import foreign
from .wire import REFUSED

if TYPE_CHECKING:
    from .kinds import Clock, Device
    from .manage import Manager
    from .optimizers import Optimizers
    from .outbox import Outbox
    from .totals import Totals
    from .window import Window
    from .wishes import Wishes

MAX_READY = 2  # how many windows may wait to be sent


class Windows:
    def __init__(
        self,
        torch: Any,
        clock: Clock,
        outbox: Outbox,
        wishes: Wishes,
        optimizers: Optimizers,
        manager: Manager,
        totals: Totals,
        broke: Callable[[BaseException], None],
    ) -> None:
        self.torch, self.clock, self.outbox, self.wishes = torch, clock, outbox, wishes
        self.optimizers, self.manager, self.broke = optimizers, manager, broke
        self.pools, self.addresses = totals.pools, totals.addresses
        self.open: Window | None = None
        self.thread = 0  # the thread that opened it
        self.wanted = 0  # how many steps it should have
        self.ready: collections.deque[Window] = collections.deque()  # to be sent
        self.unfinished: Window | None = None  # a history whose snapshot the sending thread must still take
        self.lasted = 0  # the duration of the newest step, in nanoseconds

    def here(self) -> Window | None:
        """The window that is open on this thread."""
        return self.open if self.open is not None and threading.get_ident() == self.thread else None

    def step_ended(self, begin: int | None, now: int) -> None:
        """A step has ended. begin is None if its beginning was not seen."""
        # A described step lasts longer than the next ones, and any step may be slow: grow by a quarter at
        # most.
        if begin is not None and (self.open is None or self.wishes.every == 1):
            self.lasted = min(now - begin, self.lasted + self.lasted // 4 if self.lasted else now)
        window = self.here() if self.open is not None else None
        if window is None:
            return
        if begin is not None:
            window.steps.append((begin, now))
        enough = len(window.steps) >= self.wanted and not self._goes_on(window)
        if window.stopped or self.wishes.leaving or enough:
            self.close(False)

    def _goes_on(self, window: Window) -> bool:
        """Whether a history of every step stays open for another step: the viewer has not taken the earlier
        ones, so there is no room for the next."""
        return window.how == "history" and self.wishes.every == 1 and len(self.ready) >= MAX_READY - 1

    # -- opening ---------------------------------------------------------------------------------------------

    def begin(self, now: int) -> None:
        """Open a window if one is wanted now."""
        wishes, index = self.wishes, self.outbox.produced
        if wishes.later:
            wishes.due(index)
        due = wishes.want or (wishes.every > 0 and index % wishes.every == 0)
        if not due or self.open is not None or wishes.leaving or self.unfinished:
            return
        if len(self.ready) >= MAX_READY:
            if not wishes.want:
                self.outbox.lose("windows", 1, Says("viewer_slow"))
            return
        asked = wishes.asked()
        how, steps, saves, library, orders = asked or (wishes.how, 1, False, "", [])
        if asked:
            self.addresses.expire()
        device = self.optimizers.device()
        other = self._not_eager() if how == "ops" else ""
        if other and saves:  # it is for a plan, which needs ops
            text = COMPILED if compiled_graphs() > 0 else Says("mode_around_steps")
            return self._refuse(text, "ops", orders)
        if other:
            how = self._elsewise(other, device, orders)
            orders = []
            if how == "profile" and not wishes.every:
                return  # a viewer that wants it asks again
        if how == "ops" and saves and unplannable(device):
            return self._refuse(unplannable(device), how, orders)
        refusal = self._refusal(how, device)
        if refusal:
            wishes.every = 0
            return self._refuse(refusal, how, orders)
        begin = self.clock()
        window: Window = (
            Ops(self.torch, self.clock, now, self.addresses, self.optimizers.alive(), self.broke)
            if how == "ops"
            else RECORDED[how](self.torch, now, library, device)
        )
        self.open, self.thread, self.wanted = window, threading.get_ident(), max(steps, 1)
        window.how, window.index, window.pools, window.orders = how, index, self.pools, orders
        failed = window.begin()
        if failed:
            self.open = None
            return self._refuse(failed, how, orders)
        if isinstance(window, Ops):
            self.manager.watch(window, saves)
        window.cost += self.clock() - begin

    def _not_eager(self) -> str:
        """Why a description of ops would not show the code that trains, "" if it would."""
        if compiled_graphs() > 0:
            return Says("compiled")
        if dispatch_modes(self.torch) > 0:
            return Says("mode_of_its_own")
        return ""

    def _elsewise(self, why: str, device: Device | None, orders: list[int]) -> str:
        """Capture in another way from now on, and say so."""
        self.wishes.how = "history" if device is not None and device.type == "cuda" else "profile"
        history = self.wishes.how == "history"
        text = Says("history_instead", why) if history else Says("profile_instead", why)
        self._refuse(text, "ops", orders)
        return self.wishes.how

    def _refusal(self, how: str, device: Device | None) -> str:
        """Why no window can be captured in this way, "" if one can."""
        if how == "profile" and profiler_enabled(self.torch):
            return Says("profiler_busy")
        if how != "history":
            return ""
        if device is None or device.type != "cuda":
            return Says("history_of_cpu")
        other = foreign(self.torch)
        if other is not None:
            if other.code == "allocator_named":
                return Says("history_of_backend", other)
            return Says("history_of_pluggable", other)
        if records_history(self.torch):
            return Says("history_busy")
        return ""

    def _refuse(self, why: str, key: str, orders: list[int]) -> None:
        self.outbox.say(why, key)
        self.outbox.answer(orders, REFUSED, "not_captured", why)
        self.outbox.say("", "asked")

    # -- closing ---------------------------------------------------------------------------------------------

    def close(self, partial: bool) -> None:
        """Close the open window. partial says that training ended within it."""
        window, wishes = self.open, self.wishes
        if window is None:
            return
        if not window.on_top():
            window.stop()  # a mode of the program is inside ours: wait for it to leave
            return
        begin = self.clock()
        window.look(self.optimizers.alive())
        self.manager.unwatch(window)
        window.end()
        self.open = None
        if window.how == "history" and wishes.every == 1 and not partial and not wishes.leaving:
            window.take()  # so the next can begin at once: one of them must have the request that fails
        window.cost += self.clock() - begin
        window.facts = self._facts(window)
        if wishes.leaving and not partial:
            self.finished(window)
            return
        if window.how == "ops" and compiled_graphs() > 0:
            text = Says("compiled_meanwhile")
            self.outbox.say(text, "ops")
            self.outbox.answer(window.orders, REFUSED, "not_captured", text)
            return
        if window.graphs:
            self.outbox.say(Says("graphs_replayed", window.graphs), "graphs")
        self.outbox.say("", "asked")
        window.partial = partial
        if window.how == "history" and window.taken is None:
            self.unfinished = window
        self.ready.append(window)

    def _facts(self, window: Any) -> dict[str, Any]:
        """What a planner needs to know about a window: whether it shows a pass without gradients, and what
        running a plan costs here. On a GPU copies run beside compute, and calibration measures them."""
        if not window.watched:
            return {}
        known: dict[str, Any] = {"evaluates": window.evaluates}
        device = self.optimizers.device()
        if device is None or device.type != "cpu" or compiled_graphs() > 0:
            return known
        try:
            known["costs"] = carrying_costs(self.torch, window.rows.list)
        except Exception as e:
            self.outbox.say(Says("costs_unknown", why_of(e)), "costs")
        return known

    def stop(self) -> None:
        """Stop recording. The window stays open until its own thread closes it."""
        if self.open is not None:
            self.open.stop()

    def let_go(self) -> None:
        """Leave the window that is open on this thread, and drop it."""
        window = self.here()
        if window is not None and window.leave():
            window.unhook()
            self.open = None

    # -- the sending thread's --------------------------------------------------------------------------------

    def busy(self) -> bool:
        """Whether a window is wanted, open or waiting to be sent. It is sent before the next one is made."""
        return bool(self.open is not None or self.wishes.want or self.ready)

    def next_ready(self) -> Window | None:
        """Take the next window, if it can be sent without waiting for a device."""
        return self.ready.popleft() if self.ready and self.ready[0].settled() else None

    def finished(self, window: Window) -> None:
        """A window is complete, or nobody wants it any more: the allocator stops recording for it."""
        try:
            if window.how == "history":
                window.unhook()
        except Exception:
            pass  # the device is lost
        if self.unfinished is window:
            self.unfinished = None

    def drop(self) -> None:
        """Drop the windows that wait."""
        while self.ready:
            self.finished(self.ready.popleft())
