"""Plans begin and end between two steps.

An order is a plan with a number, or none. It takes effect where a step ends, on the training thread, and
never while a window is open. Each step's row says which plan it ran under and what that moved. A plan that
cannot begin, or that does not fit three iterations in a row, is given up with a notice.

Without a plan the program's memory is left alone, unless whoever started it said that it may not fit: then
saved tensors wait on the host.
"""

from __future__ import annotations

import collections
import threading
import time
from typing import TYPE_CHECKING, Any

from .carry import COMPILED, Carrier, capturing
from .compat import compiled_graphs, dispatch_modes
from .costs import MOST, Costs
from .host import HOST_SHARE, host_room, local_ranks
from .offload import Offload
from .pool import Refused
from .pooled import Pooled
from .recorded import Events
from .send import Sender
from .settings import settings
from .wire import DONE, ENDED, REFUSED

if TYPE_CHECKING:
    from .kinds import Device, Plan
    from .ops import Ops
    from .pool import Pool

NOTHING = 0, 0, 0, 0, 0, 0  # of what Carrier.next tells


class Manager(Sender):
    """What of the agent has plans carried out."""

    if TYPE_CHECKING:

        def _of_parameters(self) -> Device: ...

    def __init__(self, path: str) -> None:
        Sender.__init__(self, path)
        # managed is the plan's number, 0 for a carrier that only watches or offloads
        self.carrier: Any = None
        self.managed = 0
        # the newest counts, and comes from the sending thread at any moment
        self.orders: collections.deque[dict[str, Any]] = collections.deque(maxlen=1)
        self.plan_order = 0  # the order that began the plan
        self.unplanned: tuple[str, ...] = settings.unplanned
        self.happened: tuple[int, ...] = NOTHING
        self.worked: tuple[int, ...] = (-1, 0, 0)
        self.since = 0, 0  # the thread that the last step ended on, and its processor time then
        self.pool: Pool | None = None  # that was used last
        # the room on the host when this was described last: before any rank took its part
        self.before: int | None = None

    def _step_ended(self) -> tuple[int, ...]:
        carrier = self.carrier
        if isinstance(self.window, Events):
            self.window.next()
        self.happened = carrier.next() if carrier is not None else NOTHING
        thread, now = threading.get_ident(), time.thread_time_ns()
        self.worked = (now - self.since[1] if self.since[0] == thread else -1,) + getattr(
            carrier, "took", (0, 0)
        )
        self.since = thread, now
        return (self.managed,) + self.happened

    def _manage(self) -> None:
        """Take up an order. At a step's end, on the training thread, with no window open."""
        # a step that becomes a graph: what begins or ends a plan waits for the next one
        if capturing(self.torch):
            return
        carrier = self.carrier
        if self.managed != 0 and isinstance(carrier, Carrier) and self._compiled():
            carrier.why = carrier.why or COMPILED
        if carrier is not None and (carrier.why or self.leaving):
            self._off()
            if carrier.why and self.was == 0:
                self._kept(carrier.why)
            elif carrier.why:
                text = "off, and training goes on as before: " + carrier.why
                self._say(text, "plan %d" % self.was)
                self._ended("differs" if carrier.differs else "given_up", text)
        if self.orders and not self.leaving:
            order = self.orders.popleft()
            self._off()
            self._ended("taken_away", "")
            if order["keep"] and self.unplanned:
                self._kept("")
            why = ""
            if order["plan"]:
                try:
                    why = self._refusal(order["plan"]) or self._on(order["id"], order["plan"])
                except Exception as e:
                    why = "the plan is malformed: %s: %s" % (type(e).__name__, e)
            if why:
                self._say("not begun: " + why, "plan %d" % order["id"])
                self._answer([order["order"]], REFUSED, "not_begun", "not begun: " + why)
            else:
                self._answer([order["order"]], DONE)
            if order["plan"] and not why:
                self.plan_order = order["order"]
                self._say("", "plan %d" % order["id"])
                self._offloaded(False)
        if self.unplanned and self._compiled():
            self._kept("torch.compile is in use, and what a compiled graph saves is its own affair")
        if self.unplanned and self._unplannable():
            self._kept(self._unplannable())
        self._offload()

    def _ended(self, reason: str, text: str) -> None:
        """Say to who ordered the plan that it is over."""
        self._answer([self.plan_order], ENDED, reason, text)
        self.plan_order = 0

    def _on(self, number: int, plan: Plan) -> str:
        return self._begin(number, (Pooled if "pool" in plan else Carrier)(self.torch, plan))

    def _begin(self, number: int, carrier: Carrier | Pooled) -> str:
        try:
            carrier.begin()
        except Exception as e:
            carrier.remove()
            return str(e) if isinstance(e, Refused) else "%s: %s" % (type(e).__name__, e)
        self.carrier, self.managed = carrier, number
        return ""

    def _offload(self) -> None:
        """Have what is saved wait on the host where there is no plan and that was asked for."""
        if not self.unplanned or self.carrier is not None or self.leaving:
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
        self._state("what autograd saves waits on the host until there is a plan", "unplanned")
        self._offloaded(True)

    def _offloaded(self, offloads: bool) -> None:
        if self.offloads and not offloads:
            self._say("", "unplanned")
        self.told_who = self.told_who and self.offloads == offloads
        self.offloads = offloads

    def _connect(self) -> bool:
        if not Sender._connect(self):
            return False
        if isinstance(self.carrier, Offload):  # a viewer who comes later has not heard it
            self._say_where()
        return True

    def _kept(self, why: str) -> None:
        """From now on what is saved stays where it is, where there is no plan."""
        self.unplanned = ()
        if self.carrier is not None and self.managed == 0:
            self._off()
        self._offloaded(False)
        self._say("what autograd saves stays on the device: " + why if why else "", "unplanned")

    def _off(self) -> None:
        carrier, self.carrier, self.was, self.managed = self.carrier, None, self.managed, 0
        if carrier is not None:
            carrier.remove()
            self.pool = getattr(carrier, "pool", self.pool)

    def _settle(self) -> None:
        """Wait for what a pool has served and training still holds: gradients above all, which the next
        step lets go of. On the sending thread, before the agent goes."""
        deadline = time.monotonic() + min(max(1.0, 3e-9 * self.lasted), 60.0)
        while self.pool is not None and self.pool.left() and time.monotonic() < deadline:
            time.sleep(0.02)
        if self.pool is not None and self.pool.left():
            self.left.append(self.pool.left())

    def _compiled(self) -> bool:
        return compiled_graphs() > 0

    def _unplannable(self) -> str:
        """Why no plan can be carried out where the parameters are, "" where one can."""
        device = self._of_parameters()
        if device is None or device.type in ("cpu", "cuda"):
            return ""
        return "the parameters are on %s, and plans are carried out on cpu and cuda" % (device,)

    def _refusal(self, plan: Plan) -> str:
        torch = self.torch
        device = self._of_parameters()
        if plan.get("version") != 1:
            return "the plan is of version %s, and this agent carries out version 1" % plan.get("version")
        if device is not None and device.type == "cuda" and getattr(torch.version, "hip", None):
            return (
                "torch is built for ROCm here, and plans are carried out on CPUs and NVIDIA GPUs: capture "
                "and replay work without one"
            )
        if "pool" in plan:
            return (
                ""
                if str(device) == plan["device"]
                else "the plan is for %s, and the parameters are on %s" % (plan["device"], device)
            )
        if self._compiled():
            return COMPILED
        if dispatch_modes(torch) > 0 and plan.get("groups"):
            return "the program has a dispatch mode of its own around its steps"
        if device is None or self._unplannable():
            return self._unplannable() or "no optimizer says where the parameters are"
        ranks, room = local_ranks(), host_room()
        if room is not None and plan.get("slab", 0) <= room * HOST_SHARE and self.before is not None:
            room = max(room, self.before)  # what the other ranks have taken by now is in the sum below
        if room is not None and plan.get("slab", 0) * ranks > room * HOST_SHARE:
            return (
                "it takes %d MiB of host memory%s, of which %d MiB are available: plan with recompute, or "
                "with a larger budget"
                % (
                    plan["slab"] * ranks >> 20,
                    " (%d ranks of this host together)" % ranks if ranks > 1 else "",
                    room >> 20,
                )
            )
        return ""

    def _not_opened(self, why: str, how: str, orders: list[int]) -> None:
        self.window = None
        self._say(why, how)
        self._answer(orders, REFUSED, "not_captured", why)
        self._say("", "asked")

    def _watch(self, window: Ops, saves: bool) -> None:
        """Have a window told of what is saved, where that is wished for, by a carrier that keeps
        everything where there is none; and of what is offloaded in any case."""
        if saves:
            self.before = host_room()
        if saves and self.carrier is None:
            self._on(0, {})
        if saves and self.carrier is not None:
            self.carrier.watch = window
            window.watched = True
        if isinstance(self.carrier, Offload):
            self.carrier.window = window

    def _unwatch(self) -> None:
        carrier, window = self.carrier, self.window
        if carrier is None:
            return
        carrier.watch = carrier.window = None
        if getattr(window, "watched", False) and carrier.why:
            text = "what autograd saves was not seen up to step %d: %s" % (self.index, carrier.why)
            self._answer(window.orders, REFUSED, "saves_unseen", text)
            window.orders = []
        if self.managed == 0 and not self.unplanned:
            self._off()

    def _costs(self, window: Any) -> dict[str, Any]:
        """What carrying a plan out takes here, for whoever plans by a window. On a GPU copies are made
        beside compute, and calibration has their figures."""
        device = self._of_parameters()
        if (
            not getattr(window, "watched", False)
            or device is None
            or device.type != "cpu"
            or self._compiled()
        ):
            return {}
        there = {row[1]: row[2] for row in window.rows if row[0] == "a"}
        saved: set[int] = set()
        for row in window.rows:
            if row[0] == "o" and row[3] == "gmemtop::save":
                saved.update(number for number in row[6] if number in there)
        sizes = sorted(there[number] for number in saved)
        half, k = sum(sizes) // 2, 0
        while k + 1 < len(sizes) and half > sizes[k]:
            half, k = half - sizes[k], k + 1
        try:
            return {"costs": Costs(self.torch).measure(min(sizes[k] if sizes else 0, MOST))}
        except Exception as e:
            self._say("what copies take here could not be measured: %s: %s" % (type(e).__name__, e), "costs")
            return {}
