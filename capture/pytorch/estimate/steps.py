"""Two more steps, described op by op, after the steps that count.

The allocator's history tells when a block lived, but not which op used it, so managers that swap or recompute
cannot plan with it. Therefore the training continues for two steps under the agent's description of ops (Ops,
whose source precedes this one), after the figures are final and the history is kept. A dispatch mode is
active meanwhile, under which torch may choose other kernels, so these steps do not count in the estimate's
figures. Kernels compute nothing here, so the time of an op comes from the device's figures.
"""

from agent.ops import Ops
from agent.recorded import allocator_rules
from agent.storages import Addresses

from .pace import Clock, Pace


class _Paced:
    """An op as Ops sees it: the real one, but it advances the clock."""

    __slots__ = ("func", "_schema", "tags", "into", "flops")

    def __init__(self, func, into):
        self.func, self._schema, self.tags, self.into = func, func._schema, func.tags, into
        self.flops = into.pace.flops(func)

    def __call__(self, *args, **kwargs):
        out = self.func(*args, **kwargs)
        into = self.into
        find = into.storages.tensors
        all = find((out,), find(kwargs.values(), find(args, [])))
        into.clock.now += into.pace.nanoseconds(self.func, self.flops, args, kwargs, out, all)
        return out

    def __getattr__(self, name):
        return getattr(self.func, name)


class Described(Ops):
    """The described steps."""

    WANTED = 2  # two, so that the first shows what it leaves for the next

    def __init__(self, run):
        self.pace, self.proxies, self.broken = Pace(run.torch, run.config["device"], run.note), {}, ""
        self.optimizers = run.known_optimizers
        Ops.__init__(self, run.torch, Clock(), 0, Addresses(), self.optimizers(), self.broke)
        self.began = 0
        self.begin()

    def broke(self, error):
        self.broken = "%s: %s" % (type(error).__name__, error)

    def _op(self, func, args, kwargs):
        proxy = self.proxies.get(func)
        if proxy is None:
            proxy = self.proxies[func] = _Paced(func, self)
        return Ops._op(self, proxy, args, kwargs)

    def _timer(self, inputs, kwargs):
        return None

    def stepped(self):
        """A step has ended. Returns whether that is enough."""
        self.steps.append((self.began, self.clock.now))
        self.began = self.clock.now
        return len(self.steps) >= self.WANTED or self.stopped

    def keep(self, path, write):
        """Write the steps to a file. Returns why there are none, "" if there are."""
        if not self.steps or self.broken:
            return self.broken or "the script ended before"
        self.look(self.optimizers())
        self.end()
        with write(path, "w") as f:
            for text in self.pieces({"epoch_ns": 0, "rules": allocator_rules(self.torch)}):
                f.write(text)
        return ""
