"""Part seven of the agent: plans come and go between two steps.

An order is a plan with a number, or none. It is taken up where a step ends, on the thread that trains, and never while a window is open. A step's row says
under which plan it ran and what that moved. A plan that cannot begin, or that does not fit three iterations in a row, is given up with a notice.
"""


HOST_SHARE = 0.9  # of the host memory that is available: more than that is not asked for, lest the system ends a process
NOTHING = 0, 0, 0, 0, 0, 0  # of what Carrier.next tells


def _host_room():
    """The bytes that may be had on this host, by the system's word and by the control group's; None where neither says."""
    rooms = []
    try:
        with open("/proc/meminfo") as f:
            rooms += [int(line.split()[1]) << 10 for line in f if line.startswith("MemAvailable:")]
        with open("/sys/fs/cgroup/memory.max") as f, open("/sys/fs/cgroup/memory.current") as g:
            rooms.append(int(f.read()) - int(g.read()))
    except (OSError, ValueError):  # "max" is no limit
        pass
    return min(rooms) if rooms else None


class Manager(Sender):
    """What of the agent has plans carried out."""

    def __init__(self, path):
        Sender.__init__(self, path)
        self.carrier, self.managed, self.order = None, 0, None  # managed is the plan's number, 0 for a carrier that only watches
        self.happened = NOTHING
        self.pool = None  # that was used last
        self.room = None  # on the host when this was described last: before any rank took its part

    def _step_ended(self):
        carrier = self.carrier
        if isinstance(self.window, Events):
            self.window.next()
        self.happened = carrier.next() if carrier is not None else NOTHING
        return (self.managed,) + self.happened

    def _manage(self):
        """Take up an order. At a step's end, on the training thread, with no window open."""
        carrier, order = self.carrier, self.order
        if carrier is not None and (carrier.why or self.leaving):
            self._off()
            if carrier.why:
                self._say("off, and training goes on as before: " + carrier.why, ("plan %d differs" if carrier.differs else "plan %d") % self.was)
        if order is None or self.leaving:
            return
        self.order = None
        self._off()
        if order.get("plan"):
            why = self._refusal(order["plan"])
            if not why:
                why = self._on(order["id"], order["plan"])
            if why:
                self._say("not begun: " + why, "plan %d" % order["id"])

    def _on(self, number, plan):
        carrier = (Pooled if "pool" in plan else Carrier)(self.torch, plan)
        try:
            carrier.begin()
        except Exception as e:
            carrier.remove()
            return str(e) if isinstance(e, Refused) else "%s: %s" % (type(e).__name__, e)
        self.carrier, self.managed = carrier, number
        return ""

    def _off(self):
        carrier, self.carrier, self.was, self.managed = self.carrier, None, self.managed, 0
        if carrier is not None:
            carrier.remove()
            self.pool = getattr(carrier, "pool", self.pool)

    def _settle(self):
        """Wait for what a pool has served and training still holds: gradients above all, which the next step lets go of. On the sending thread, before the agent goes."""
        deadline = time.monotonic() + min(max(1.0, 3e-9 * self.lasted), 60.0)
        while self.pool is not None and self.pool.left() and time.monotonic() < deadline:
            time.sleep(0.02)
        if self.pool is not None and self.pool.left():
            self.left.append(self.pool.left())

    def _compiled(self):
        counters = getattr(sys.modules.get("torch._dynamo.utils"), "counters", None)
        return bool(counters) and counters.get("stats", {}).get("unique_graphs", 0) > 0

    def _refusal(self, plan):
        torch = self.torch
        device = self._of_parameters()
        if plan.get("version") != 1:
            return "the plan is of version %s, and this agent carries out version 1" % plan.get("version")
        if "pool" in plan:
            return "" if str(device) == plan["device"] else "the plan is for %s, and the parameters are on %s" % (plan["device"], device)
        if self._compiled():
            return "torch.compile is in use, and what a compiled graph saves is not seen tensor by tensor: set torch._functorch.config.activation_memory_budget instead"
        if torch._C._len_torch_dispatch_stack() > 0 and plan.get("groups"):
            return "the program has a dispatch mode of its own around its steps"
        if device is None or device.type not in ("cpu", "cuda"):
            return "the parameters are on %s, and plans are carried out on cpu and cuda" % (device,)
        ranks, room = os.environ.get("LOCAL_WORLD_SIZE", ""), _host_room()
        if room is not None and plan.get("slab", 0) <= room * HOST_SHARE and self.room is not None:
            room = max(room, self.room)  # what the other ranks have taken by now is in the sum below
        ranks = max(int(ranks), 1) if ranks.isdigit() else 1
        if room is not None and plan.get("slab", 0) * ranks > room * HOST_SHARE:
            return "it takes %d MiB of host memory%s, of which %d MiB are available: plan with recompute, or with a larger budget" % (
                plan["slab"] * ranks >> 20, " (%d ranks of this host together)" % ranks if ranks > 1 else "", room >> 20)
        return ""

    def _not_opened(self, why, how):
        self.window = None
        self._say(why, how)
        self._say("", "asked")

    def _watch(self, window):
        """Have a window told of what is saved, by a carrier that keeps everything where there is none."""
        if self.carrier is None:
            self.room = _host_room()
            self._on(0, {})
        if self.carrier is not None:
            self.carrier.watch = window

    def _unwatch(self):
        if self.carrier is not None:
            self.carrier.watch = None
            if self.managed == 0:
                why = self.carrier.why
                self._off()
                if why:
                    self._say("what autograd saves was not seen up to step %d: %s" % (self.index, why), "plan 0")
