"""Starts and ends plans, between two steps.

An order is a plan with a number, or no plan. It takes effect at the end of a step, on the training thread,
and never while a window is open. Each step's row says which plan it ran under and what the plan moved. A plan
that cannot begin, or that does not fit three iterations in a row, is given up with a notice.

Without a plan the program's memory is left alone, unless its viewer said that it may not fit: then saved
tensors wait on the host.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

from .carry import Carrier
from .compat import compiled_graphs, dispatch_modes
from .host import HOST_SHARE, host_room, local_ranks
from .offload import Offload
from .outbox import UNTIMED, WITHOUT
from .parked import Parked
from .pooled import Pooled
from .region import COMPILED
from .says import Says, why_of
from .settings import settings
from .streams import capturing
from .wire import DONE, ENDED, REFUSED

if TYPE_CHECKING:
    from .kinds import Carries, Device, Optimizer, Plan
    from .ops import Ops
    from .optimizers import Optimizers
    from .outbox import Outbox
    from .pool import Pool
    from .wishes import Wishes

# reading the processor time takes t nanoseconds, at most WORK_MOST: without a plan, it is done at most once
# every WORK_SHARE * t
WORK_SHARE, WORK_MOST = 1000, 20000
UNREAD = 0, 0, 0  # no processor time was read yet, or it says nothing about the next step


def unplannable(device: Device | None) -> str:
    """Why no plan can run on the parameters' device, "" if one can."""
    if device is None or device.type in ("cpu", "cuda"):
        return ""
    return Says("device_without_plans", str(device))


class Manager:
    """Starts and ends plans."""

    def __init__(self, torch: Any, outbox: Outbox, wishes: Wishes, optimizers: Optimizers) -> None:
        self.torch, self.outbox, self.wishes, self.optimizers = torch, outbox, wishes, optimizers
        # managed is the plan's number, 0 for a carrier that only watches or offloads
        self.carrier: Carries | None = None
        self.managed = 0
        self.happened: tuple[int, ...] = WITHOUT[1:]  # what the carrier moved in its last step
        self.was = 0  # the number of the previous plan
        self.plan_order = 0  # the order that started the plan
        self.unplanned: tuple[str, ...] = settings.unplanned
        self.offloads = False  # saved tensors wait on the host, as viewers are told
        self.worked: tuple[int, ...] = UNTIMED
        # the thread on which a step ended, its processor time then, and the number of the next step
        self.since = UNREAD
        self.next_work = 0  # when to read the processor time again
        self.exact = False  # read it at each step's end, since a plan is being made or has run
        self.pool: Pool | None = None  # the last pool used
        # the free memory on the host at the last description, before any rank took its part
        self.before: int | None = None

    def step_ended(self, now: int, index: int, captured: bool) -> tuple[int, ...]:
        """Step index has ended, and was captured or not. Returns the number of its plan, and what the plan
        moved."""
        carrier = self.carrier
        if carrier is None and now < self.next_work:
            self.worked = UNTIMED
            if captured:
                self.since = UNREAD  # capturing took some of the time since the last reading
            return WITHOUT
        self.happened = carrier.next() if carrier is not None else WITHOUT[1:]
        begin = time.perf_counter_ns()
        thread, worked = threading.get_ident(), time.thread_time_ns()
        took = carrier.took if carrier is not None else (0, 0)
        # the mean of the steps since the last reading
        known = self.since[0] == thread and self.since[2] <= index
        self.worked = ((worked - self.since[1]) // (index + 1 - self.since[2]) if known else -1,) + took
        self.since = thread, worked, index + 1
        rest = WORK_SHARE * min(time.perf_counter_ns() - begin, WORK_MOST)
        self.next_work = now + rest if known and not self.exact else 0
        return (self.managed,) + self.happened

    def calm(self) -> bool:
        """Whether the next steps need nothing from the manager."""
        return self.carrier is None and self.next_work > 0 and not self.unplanned

    def manage(self) -> None:
        """Execute an order. Called at a step's end, on the training thread, with no window open."""
        if not (self.wishes.plans or self.unplanned or self.carrier is not None):
            return
        # the step is being captured into a graph: wait for the next one before starting or ending a plan
        if capturing(self.torch):
            return
        carrier = self.carrier
        if self.managed != 0 and isinstance(carrier, Carrier) and self._compiled():
            carrier.why = carrier.why or COMPILED
        if self.managed != 0 and isinstance(carrier, Carrier) and carrier.sizes.news:
            sizes = carrier.sizes
            sizes.news = False
            self.outbox.answer([self.plan_order], DONE, "larger", sizes=list(sizes.known), larger=sizes.steps)
        if carrier is not None and (carrier.why or self.wishes.leaving):
            self.off()
            if carrier.why and self.was == 0:
                self._kept(carrier.why)
            elif carrier.why:
                text = Says("plan_off", carrier.why)
                self.outbox.say(text, "plan %d" % self.was)
                self._ended("differs" if carrier.differs else "given_up", text)
        order = None if self.wishes.leaving else self.wishes.ordered()
        if order is not None:
            self.exact = True
            self.off()
            self._ended("taken_away", "")
            if order["keep"] and self.unplanned:
                self._kept("")
            why = ""
            if order["plan"]:
                try:
                    why = self._refusal(order["plan"]) or self._on(order["id"], order["plan"])
                except Exception as e:
                    why = Says("plan_malformed", why_of(e))
            if why:
                text = Says("plan_not_begun", why)
                self.outbox.say(text, "plan %d" % order["id"])
                self.outbox.answer([order["order"]], REFUSED, "not_begun", text)
            else:
                self.outbox.answer([order["order"]], DONE)
            if order["plan"] and not why:
                self.plan_order = order["order"]
                self.outbox.say("", "plan %d" % order["id"])
                self._offloaded(False)
        if self.unplanned and self._compiled():
            self._kept(Says("compiled_saves"))
        if self.unplanned and unplannable(self.optimizers.device()):
            self._kept(unplannable(self.optimizers.device()))
        self.offload()

    def _ended(self, reason: str, text: str) -> None:
        """Tell whoever ordered the plan that it has ended."""
        self.outbox.answer([self.plan_order], ENDED, reason, text)
        self.plan_order = 0

    def _on(self, number: int, plan: Plan) -> str:
        if plan.get("state"):
            return self._begin(number, Parked(self.torch, plan, self.optimizers))
        return self._begin(number, (Pooled if "pool" in plan else Carrier)(self.torch, plan))

    # -- around the step of an optimizer ---------------------------------------------------------------------

    def optimizer_enters(self, optimizer: Optimizer, calls: bool) -> None:
        """The outermost step of an optimizer begins. calls says that it calls the program's closure."""
        if isinstance(self.carrier, Parked):
            self.carrier.optimizer_enters(optimizer, calls)

    def closure_left(self, optimizer: Optimizer) -> None:
        if isinstance(self.carrier, Parked):
            self.carrier.closure_left(optimizer)

    def optimizers_left(self) -> None:
        """No optimizer steps any more."""
        if isinstance(self.carrier, Parked):
            self.carrier.optimizers_left()

    def _begin(self, number: int, carrier: Carries) -> str:
        try:
            carrier.begin()
        except Exception as e:
            carrier.remove()
            return why_of(e)
        self.carrier, self.managed = carrier, number
        if isinstance(carrier, Carrier):
            carrier.leaves = self._leaves
        return ""

    def _leaves(self) -> bool:
        """The outermost module is entered. If the agent is to leave, or the viewer that turned the plan on
        has gone, end the plan here and return True: plans usually end with a step, but the program may only
        evaluate from now on."""
        carrier, wishes = self.carrier, self.wishes
        if not (wishes.leaving or wishes.abandoned and self.managed != 0):
            return False
        if (
            carrier is None
            or carrier.watch is not None
            or carrier.window is not None
            or capturing(self.torch)
        ):
            return False
        self.off()
        return True

    def offload(self) -> None:
        """Move saved tensors to the host, if that was asked for and there is no plan."""
        if not self.unplanned or self.carrier is not None or self.wishes.leaving:
            return
        room = host_room()
        why = self._begin(
            0,
            Offload(
                self.torch, self.unplanned, None if room is None else int(room * HOST_SHARE) // local_ranks()
            ),
        )
        if why:
            self._kept(why)
        else:
            self._say_where()

    def _say_where(self) -> None:
        self.outbox.state(Says("offloads"), "unplanned")
        self._offloaded(True)

    def _offloaded(self, offloads: bool) -> None:
        if self.offloads and not offloads:
            self.outbox.say("", "unplanned")
        self.offloads = offloads

    def connected(self) -> None:
        """A viewer has connected: tell it whether saved tensors wait on the host."""
        if isinstance(self.carrier, Offload):
            self._say_where()

    def _kept(self, why: str) -> None:
        """From now on, saved tensors stay where they are while there is no plan."""
        self.unplanned = ()
        if self.carrier is not None and self.managed == 0:
            self.off()
        self._offloaded(False)
        self.outbox.say(Says("saves_stay", why) if why else "", "unplanned")

    def off(self) -> None:
        carrier, self.carrier, self.was, self.managed = self.carrier, None, self.managed, 0
        if carrier is not None:
            carrier.remove()
        if isinstance(carrier, Pooled):
            self.pool = carrier.pool

    def let_go(self) -> None:
        """The agent is disarmed: end what runs on this thread."""
        if self.carrier is not None and self.carrier.thread in (0, threading.get_ident()):
            self.off()

    def settle(self, lasted: int) -> str:
        """Wait until training releases what the pool served: mainly gradients, which the next step frees.
        Returns what is left, "" for nothing. Called on the sending thread before the agent leaves; lasted is
        the duration of a step in nanoseconds."""
        deadline = time.monotonic() + min(max(1.0, 3e-9 * lasted), 60.0)
        while self.pool is not None and self.pool.left() and time.monotonic() < deadline:
            time.sleep(0.02)
        return self.pool.left() if self.pool is not None else ""

    def _compiled(self) -> bool:
        return compiled_graphs() > 0

    def _refusal(self, plan: Plan) -> str:
        torch = self.torch
        device = self.optimizers.device()
        if plan.get("version") != 1:
            return Says("plan_version", str(plan.get("version")))
        if device is not None and device.type == "cuda" and getattr(torch.version, "hip", None):
            return Says("plan_rocm")
        if "pool" in plan:
            return (
                "" if str(device) == plan["device"] else Says("plan_device", str(plan["device"]), str(device))
            )
        if self._compiled():
            return COMPILED
        if dispatch_modes(torch) > 0 and plan.get("groups"):
            return Says("mode_around_steps")
        if device is None or unplannable(device):
            return unplannable(device) or Says("device_unknown")
        ranks, room = local_ranks(), host_room()
        slab = plan.get("slab", 0) + plan.get("state", 0)
        if room is not None and slab <= room * HOST_SHARE and self.before is not None:
            room = max(room, self.before)  # the sum below already includes what other ranks have taken by now
        if room is not None and slab * ranks > room * HOST_SHARE:
            takes, free = slab * ranks >> 20, room >> 20
            return (
                Says("host_full_ranks", takes, ranks, free) if ranks > 1 else Says("host_full", takes, free)
            )
        return ""

    def watch(self, window: Ops, saves: bool) -> None:
        """Let a window see what is saved, if that was asked for; without a plan, a carrier that keeps
        everything reports it. The window is always told what is offloaded."""
        if saves:
            self.exact, self.before = True, host_room()
        if saves and self.carrier is None:
            self._on(0, {})
        if saves and self.carrier is not None:
            self.carrier.watch = window
            window.watched = True
        if isinstance(self.carrier, Offload):
            self.carrier.window = window

    def unwatch(self, window: Any) -> None:
        """A window closes: stop telling it."""
        carrier = self.carrier
        if carrier is None:
            return
        carrier.watch = carrier.window = None
        if window.watched and carrier.why:
            text = Says("saves_unseen", self.outbox.produced, carrier.why)
            self.outbox.answer(window.orders, REFUSED, "saves_unseen", text)
            window.orders = []
        if self.managed == 0 and not self.unplanned:
            self.off()
