"""Opens and closes windows, where a step ends and on the training thread. At most one is open."""

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

MAX_READY = 2  # windows that wait to be sent


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
        self.thread = 0  # where it was opened
        self.wanted = 0  # its steps
        self.ready: collections.deque[Window] = collections.deque()  # to be sent
        self.unfinished: Window | None = None  # a history that the sending thread has still to take out
        self.lasted = 0  # nanoseconds of the newest step

    def here(self) -> Window | None:
        """The window that is open on this thread."""
        return self.open if self.open is not None and threading.get_ident() == self.thread else None

    def step_ended(self, begin: int | None, now: int) -> None:
        """A step has ended, which has a beginning unless it was half seen."""
        # a step that is described lasts longer than those that follow, and so may any one
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
        """Whether a history of every step stays open for another one: the viewer has not taken those
        before, so that there is no room for a next."""
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
        if other and saves:  # for a plan, which nothing but ops serves
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
        """Why a description of ops would show other code than what trains, "" where it would not."""
        if compiled_graphs() > 0:
            return Says("compiled")
        if dispatch_modes(self.torch) > 0:
            return Says("mode_of_its_own")
        return ""

    def _elsewise(self, why: str, device: Device | None, orders: list[int]) -> str:
        """Take another means from now on, and say so."""
        self.wishes.how = "history" if device is not None and device.type == "cuda" else "profile"
        history = self.wishes.how == "history"
        text = Says("history_instead", why) if history else Says("profile_instead", why)
        self._refuse(text, "ops", orders)
        return self.wishes.how

    def _refusal(self, how: str, device: Device | None) -> str:
        """Why no window can be opened by some means, "" where one can."""
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
        """Close the window that is open; partial is one in which training ended."""
        window, wishes = self.open, self.wishes
        if window is None:
            return
        if not window.on_top():
            window.stop()  # a mode of the program's own stands inside of ours: wait for it to leave
            return
        begin = self.clock()
        window.look(self.optimizers.alive())
        self.manager.unwatch(window)
        window.end()
        self.open = None
        if window.how == "history" and wishes.every == 1 and not partial and not wishes.leaving:
            window.take()  # so that the next begins at once: the request that fails must be in one of them
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
        """What a planner has to know of a window: whether it shows a pass without gradients, and what
        carrying out a plan costs here. On a GPU copies run beside compute, and calibration has their
        figures."""
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
        """The window notes nothing any more. It stands until its own thread closes it."""
        if self.open is not None:
            self.open.stop()

    def let_go(self) -> None:
        """Leave what was open on this thread, and keep nothing of it."""
        window = self.here()
        if window is not None and window.leave():
            window.unhook()
            self.open = None

    # -- the sending thread's --------------------------------------------------------------------------------

    def busy(self) -> bool:
        """Whether a window is made or waits: it is to be sent before the next is made."""
        return bool(self.open is not None or self.wishes.want or self.ready)

    def next_ready(self) -> Window | None:
        """The next window that can be sent without waiting for a device."""
        return self.ready.popleft() if self.ready and self.ready[0].settled() else None

    def finished(self, window: Window) -> None:
        """A window is taken out, or nobody wants it any more: the allocator records no longer for it."""
        try:
            if window.how == "history":
                window.unhook()
        except Exception:
            pass  # a device that is lost
        if self.unfinished is window:
            self.unfinished = None

    def drop(self) -> None:
        """Give up the windows that wait."""
        while self.ready:
            self.finished(self.ready.popleft())
