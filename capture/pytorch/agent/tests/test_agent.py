"""Tests the agent at the end of a step, without torch."""

import itertools
import json
import os
import signal
import struct
import sys
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace

import pytest

from agent import around, arrive, manage, process, wire
from agent.agent import REST, Agent
from agent.around import around_backward
from agent.carry import Carrier
from agent.closures import around_closure
from agent.guard import Guard
from agent.link import Bell
from agent.markers import Markers
from agent.optimizers import Optimizers
from agent.outbox import Outbox
from agent.process import calling_hooks
from agent.says import Refused
from agent.steps import ELSEWHERE, UNSTEPPED, Steps
from agent.storages import Addresses
from agent.tally import COUNTED, Tally, counting
from agent.totals import Pools
from agent.unlisted import SILENT
from agent.windows import MAX_READY, Windows
from agent.wishes import Wishes


class Optimizer:
    def __init__(self, device=None):
        p = SimpleNamespace(device=device, grad=None)
        self.param_groups, self.state = [{"params": [p]}], {}
        self.call = {}  # the keyword arguments of its step, passed to both hooks


class Manager:
    watched = None

    def watch(self, window, saves):
        self.watched = saves

    def unwatch(self, window):
        pass


def windows(device, *wishes):
    """Windows of a program with parameters on a device, and wishes for windows."""
    torch = SimpleNamespace(
        _C=SimpleNamespace(_len_torch_dispatch_stack=lambda: 0),
        autograd=SimpleNamespace(_profiler_enabled=lambda: False),
    )
    wanted, optimizers = Wishes(Tally(None)), Optimizers()
    wanted.want.extend(wishes)
    optimizer = Optimizer(device)
    optimizers.add(optimizer)
    totals = SimpleNamespace(pools=Pools(), addresses=Addresses())
    made = Windows(torch, lambda: 0, Outbox(Tally(None)), wanted, optimizers, Manager(), totals, None)
    made.keep = optimizer
    return made


def answers(w):
    return [(a["order"], a["state"], a["reason"]) for a in w.outbox.answers]


def test_saves_that_no_plan_can_follow_are_refused_and_disarm_nothing():
    w = windows(SimpleNamespace(type="xpu"), ("ops", 2, True, "", [5]))
    w.begin(0)
    assert answers(w) == [(5, wire.REFUSED, "not_captured")]
    assert w.open is None


def test_compiled_steps_are_described_for_no_plan_and_stay_captured_by_ops(monkeypatch):
    w = windows(SimpleNamespace(type="cpu"), ("ops", 2, True, "", [5]))
    monkeypatch.setattr("agent.windows.compiled_graphs", lambda: 1)
    how = w.wishes.how
    w.begin(0)
    assert answers(w) == [(5, wire.REFUSED, "not_captured")]
    assert [a["text"].code for a in w.outbox.answers] == ["compiled_plan"]
    assert (w.open, w.wishes.how) == (None, how)


def test_a_history_of_the_cpus_memory_is_refused_and_not_tried_again():
    w = windows(SimpleNamespace(type="cpu"), ("history", 1, False, "", [5]))
    w.wishes.every = 1
    w.begin(0)
    assert answers(w) == [(5, wire.REFUSED, "not_captured")]
    assert w.wishes.every == 0


def test_windows_that_nobody_takes_are_made_no_more_and_counted():
    w = windows(SimpleNamespace(type="cpu"))
    w.wishes.every = 1
    w.ready.extend(SimpleNamespace(how="ops", settled=lambda: False) for _ in range(MAX_READY))
    w.begin(0)
    assert w.open is None
    assert [payload["n"] for kind, payload in w.outbox.notices if kind == wire.LOST] == [1]
    assert w.next_ready() is None  # a device is not done with it
    w.ready[0].settled = lambda: True
    assert w.next_ready().how == "ops"


class Window:
    """A fake window."""

    how, stopped, watched, graphs, cost, orders, taken = "ops", False, False, 0, 0, [7], None
    top, ended = True, False

    def __init__(self):
        self.steps = []

    def on_top(self):
        return self.top

    def look(self, optimizers):
        pass

    def stop(self):
        self.stopped = True

    def end(self):
        self.ended = True


def opened(wanted):
    import threading

    w = windows(SimpleNamespace(type="cpu"))
    w.open, w.thread, w.wanted = Window(), threading.get_ident(), wanted
    return w, w.open


def test_a_window_closes_behind_its_last_step():
    w, window = opened(2)
    w.step_ended(0, 10)
    assert w.open is window
    w.step_ended(10, 25)
    assert w.open is None
    assert window.ended
    assert window.steps == [(0, 10), (10, 25)]
    assert list(w.ready) == [window]


def test_a_window_inside_of_which_a_mode_stands_waits_for_it():
    w, window = opened(1)
    window.top = False
    w.step_ended(0, 10)
    assert w.open is window
    assert window.stopped
    window.top = True
    w.step_ended(10, 20)
    assert w.open is None


def test_who_leaves_wants_no_window():
    w, window = opened(5)
    w.wishes.leaving = True
    w.step_ended(0, 10)
    assert w.open is None
    assert window.ended
    assert not w.ready


def test_a_step_that_is_described_says_little_of_those_that_follow():
    w = windows(None)
    w.step_ended(0, 100)
    w.step_ended(100, 1100)
    assert w.lasted == 125
    w.open = Window()
    w.step_ended(1100, 1101)
    assert w.lasted == 125


def test_wishes_for_the_same_means_become_one():
    wishes = [("ops", 1, False, "", [1]), ("history", 1, False, "", [2]), ("ops", 3, True, "", [3])]
    w = Wishes(Tally(None))
    w.want.extend(wishes)
    assert w.asked() == ("ops", 3, True, "", [1, 3])
    assert list(w.want) == [wishes[1]]
    assert w.asked() == wishes[1]
    assert w.asked() is None


def test_optimizers_are_known_once_and_weakly():
    known, a, b = Optimizers(), Optimizer("cpu"), Optimizer("cuda:0")
    assert known.device() is None
    assert [known.add(a), known.add(b), known.add(a)] == [True, True, False]
    assert known.device() == "cpu"
    del a
    assert known.alive() == [b]
    assert known.device() == "cuda:0"
    assert known.add(Optimizer()) is True
    assert len(known.known) == 2


def stepped(steps, optimizer, begin, end):
    """Whether a training step ends with this optimizer's step."""
    steps.optimizer_enters(optimizer, begin)
    return steps.optimizer_leaves(optimizer, end) and steps.ends(optimizer)


def test_the_first_optimizer_ends_a_step_until_it_is_out_of_use():
    steps, a, b = Steps(Tally(0)), Optimizer(), Optimizer()
    assert stepped(steps, a, 10, 20)
    assert [stepped(steps, b, 30, 35) for _ in range(ELSEWHERE)] == [False] * ELSEWHERE
    assert stepped(steps, b, 40, 50)
    assert not stepped(steps, a, 60, 70)


def test_a_step_inside_of_another_is_part_of_it():
    steps, a, b = Steps(Tally(0)), Optimizer(), Optimizer()
    steps.optimizer_enters(a, 10)
    steps.optimizer_enters(b, 12, True)
    assert not steps.optimizer_leaves(b, 14)
    assert steps.optimizer_leaves(a, 20)
    assert steps.tally.optimizer == 10
    steps.optimizer_enters(a, 30)  # it raises: nothing tells that it has left
    steps.optimizer_enters(a, 40)
    assert steps.optimizer_leaves(a, 45)
    assert steps.tally.optimizer == 15


def test_what_an_optimizers_closure_takes_is_not_the_optimizers():
    steps, a, b = Steps(Tally(0)), Optimizer(), Optimizer()
    steps.optimizer_enters(a, 10)
    assert steps.optimizing()
    for begin in (20, 40):
        steps.closure_enters(begin)
        assert not steps.optimizing()
        steps.optimizer_enters(b, begin + 1, True)  # it raises: nothing tells that it has left
        assert steps.optimizing()
        steps.closure_leaves(begin + 5)
        assert steps.optimizing()
    assert steps.optimizer_leaves(a, 50)
    assert not steps.optimizing()
    assert steps.tally.optimizer == 30
    steps.closure_leaves(60)  # the agent did not see this step begin
    assert steps.tally.optimizer == 30


def test_a_closure_is_wrapped_wherever_it_is_given_and_raises_what_it_raised():
    heard = []

    def closure():
        heard.append("runs")
        raise KeyError

    for args, kwargs in (((1, closure), {}), ((1,), {"closure": closure}), ((1, closure, 2), {"x": 3})):
        heard.clear()
        given, named = around_closure(args, kwargs, heard.append)
        wrapped = named["closure"] if "closure" in named else given[1]
        with pytest.raises(KeyError):
            wrapped()
        assert heard == [True, "runs", False]
        assert wrapped.__wrapped__ is closure
        assert (given[0], given[2:]) == (args[0], args[2:])
        assert named.get("x") == kwargs.get("x")
    assert around_closure((1,), {}, heard.append) is None
    assert around_closure((1, None), {"closure": None}, heard.append) is None


def test_a_scaler_that_steps_nothing_ends_a_step():
    steps, a = Steps(Tally(0)), Optimizer()
    assert not steps.skipped()  # no optimizer has stepped yet
    stepped(steps, a, 1, 2)
    steps.next(2, False)
    assert not steps.skipped()
    steps.tally.stepped = 0
    assert steps.skipped()
    steps.tally.begin = None  # half seen
    assert not steps.skipped()


def test_what_is_left_of_a_step_is_its_forward_pass():
    steps, a = Steps(Tally(100)), Optimizer()
    steps.backward_left(30)
    stepped(steps, a, 160, 170)
    assert steps.tally.forward(180) == 40
    steps.next(180, True)
    assert (steps.tally.begin, steps.tally.stepped, steps.tally.forward(190)) == (180, 0, 10)


def test_passes_that_no_step_follows_are_said_once_and_taken_back():
    steps, a = Steps(Tally(0)), Optimizer()
    assert [steps.backward_left(0) for _ in range(UNSTEPPED + 5)].count(True) == 1
    stepped(steps, a, 1, 2)
    assert [steps.heard_again(), steps.heard_again()] == [True, False]


def raises(*args):
    raise ValueError("the program's own")


def test_an_error_of_a_signals_handler_is_the_programs():
    guard, before = Guard(), signal.signal(signal.SIGUSR1, raises)
    try:
        os.kill(os.getpid(), signal.SIGUSR1)
    except ValueError as e:
        own = e
    finally:
        assert guard.caught(own)
        signal.signal(signal.SIGUSR1, before)
    assert guard.dead
    assert guard.why == "ValueError: the program's own"


def test_the_reason_is_known_once_the_agent_is_disarmed() -> None:
    guard, dead = Guard(), []

    class Slow(ValueError):
        def __str__(self) -> str:
            dead.append(guard.dead)
            return "slow"

    class Wordless(ValueError):
        def __str__(self) -> str:
            raise ValueError("no words")

    assert not guard.caught(Slow())
    assert dead == [False] and guard.dead and guard.why == "Slow: slow"
    guard = Guard()
    assert not guard.caught(Wordless())
    assert guard.dead and guard.why == "Wordless"


def test_an_error_of_ours_is_kept_and_the_first_one_is_named():
    guard = Guard()
    guard.broke(KeyError("ours"))
    assert not guard.caught(ValueError("later"))
    assert guard.why == "KeyError: 'ours'"
    with pytest.raises(KeyboardInterrupt):
        guard.broke(KeyboardInterrupt())


def test_a_bell_rings_once_for_many_and_is_silent_where_it_is_closed():
    bell = Bell()
    bell.ring()
    bell.open()
    for _ in range(100000):
        bell.ring()
    bell.sleep(0)
    ends = bell.ends
    bell.close()
    bell.ring()
    for end in ends:
        with pytest.raises(OSError):
            os.fstat(end)


def test_markers_come_and_go(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    theirs = tmp_path / "viewer"
    theirs.mkdir()
    markers = Markers(str(theirs / "x.sock"))
    markers.put()
    found = sorted(tmp_path.glob("*/*.json"))
    assert [p.name for p in found] == ["%d.json" % os.getpid()] * 2
    assert found[0].parent.stat().st_mode & 0o777 == 0o700
    markers.remove()
    assert list(tmp_path.glob("*/*")) == []


def test_nothing_of_an_agent_holds_it(monkeypatch):
    """It is freed with its last reference: its parts form no cycle that would wait for the collector."""
    import sys

    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace())
    agent = Agent("/nowhere", False)
    parts = [weakref.ref(x) for x in (agent, agent.windows, agent.sender, agent.manager, agent.totals)]
    del agent
    assert [part() for part in parts] == [None] * len(parts)


def test_a_process_that_has_an_agents_hooks_is_not_brought_another(monkeypatch):
    """A forked child has such hooks, but no agent thread before its first step."""
    import sys

    hooks, brought = {}, []
    optimizer = SimpleNamespace(_global_optimizer_pre_hooks=hooks)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace())
    monkeypatch.setitem(sys.modules, "torch.optim", SimpleNamespace(optimizer=optimizer))
    monkeypatch.setattr(arrive, "attach", brought.append)
    hooks[0] = lambda optimizer, args, kwargs: None  # the program's own
    arrive.reach("/nowhere")
    agent = Agent("/nowhere", False)
    hooks[1], _ = counting(agent.tally, agent.clock, agent._pre, agent._post, agent.caught)
    arrive.reach("/nowhere")
    assert brought == ["/nowhere"]


def test_the_goodbye_comes_after_everything_else(monkeypatch):
    """The sending thread leaves as soon as it sees a goodbye, so a window closed later never arrives."""
    import sys

    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace())
    agent = Agent("/nowhere", False)
    late = []

    def noting(name, raises=False):
        def done(*args):
            if agent.exit is not None:
                late.append(name)
            if raises:
                raise OSError

        return done

    agent.thread = SimpleNamespace(ident=0, join=lambda seconds: None, is_alive=lambda: False)
    agent.windows.open, agent.windows.thread = SimpleNamespace(steps=[], start=0), threading.get_ident()
    monkeypatch.setattr(agent.windows, "close", noting("window"))
    monkeypatch.setattr(agent.lookout, "last", noting("lookout"))
    monkeypatch.setattr(agent.manager, "off", noting("manager", raises=True))
    agent._at_exit()
    assert late == []
    assert agent.exit == {"reason": "exit", "detail": ""}  # whatever fails before it


class Clocked:
    """An agent with a clock that we set, and an optimizer that steps under it."""

    def __init__(self, monkeypatch):
        import sys

        monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=SimpleNamespace()))
        self.agent, self.now, self.optimizer = Agent("/nowhere", False), 1, Optimizer()
        self.agent.clock = self.agent.windows.clock = self.agent.totals.clock = lambda: self.now
        self.agent.thread = SimpleNamespace(ident=0)
        self.agent.totals._take_known = lambda now: None
        self.agent.epoch = self.agent.outbox.epoch = 1000
        self.agent.manager.next_work = 1 << 62
        agent = self.agent
        self.pre, self.post = counting(agent.tally, agent.clock, agent._pre, agent._post, agent.caught)

    def step(self, took):
        """A step that takes `took` nanoseconds, a tenth of them in the optimizer."""
        self.now += took - took // 10
        self.pre(self.optimizer, (self.optimizer,), self.optimizer.call)
        self.now += took // 10
        self.post(self.optimizer, (self.optimizer,), self.optimizer.call)
        assert not self.agent.guard.why

    def count(self):
        """Step until steps are only counted."""
        for _ in range(20):
            self.step(REST // 50)
        assert self.agent.tally.calm > self.now + REST // 2


def test_most_steps_are_only_counted_and_their_rows_are_whole(monkeypatch):
    c = Clocked(monkeypatch)
    for _ in range(200):
        c.step(REST // 50)
    rows = list(c.agent.tally.rows)
    counted = [row[0] for row in rows if len(row) == COUNTED]
    assert 180 < len(counted) < 198
    sent = json.loads(c.agent.outbox.take())
    assert [row[0] for row in sent] == list(range(199))  # the first was half seen
    assert [len(row) for row in sent] == [18 if len(row) == COUNTED else len(row) for row in rows]
    for before, row in zip(sent, sent[1:]):
        assert row[1] == before[2] and row[2] - row[1] == REST // 50
        assert row[3:6] == [REST // 50 - REST // 500, 0, REST // 500]


@pytest.mark.parametrize("counted", [True, False])
def test_a_step_that_ends_wakes_the_sender_once(monkeypatch, counted):
    c, rung = Clocked(monkeypatch), []
    c.count()
    tally = c.agent.tally
    tally.ring = lambda: rung.append(tally.produced)
    c.step(REST // 50)
    assert not rung  # it does not sleep
    tally.armed = True
    if not counted:
        tally.wake()
    for _ in range(3):
        c.step(REST // 50)
    assert rung == [tally.produced - 2] and not tally.armed


def test_the_processor_time_of_counted_steps_is_read_once_in_a_while(monkeypatch):
    """A row that is more than counted has the mean of the steps since the last such row."""
    c = Clocked(monkeypatch)
    clock = SimpleNamespace(perf_counter_ns=lambda: 0, thread_time_ns=lambda: c.now // 2)
    monkeypatch.setattr(manage, "time", clock)
    c.agent.manager.next_work = 0
    for _ in range(200):
        c.step(REST // 50)
    rows = [row for row in c.agent.tally.rows if len(row) > COUNTED]
    assert 4 <= len(rows) < 10  # WARM, and then one for each REST
    assert {row[29] for row in rows[1:]} == {REST // 100}
    c.agent.manager.next_work = 1 << 62
    assert c.agent.manager.step_ended(c.now, 200, True) and c.agent.manager.since == manage.UNREAD
    c.agent.manager.next_work = 0
    c.agent.manager.step_ended(c.now, 201, False)
    assert c.agent.manager.worked[0] == -1  # nothing was read since the captured step


def test_a_backward_pass_of_a_counted_step_counts_once(monkeypatch):
    c = Clocked(monkeypatch)
    c.agent.torch._C = SimpleNamespace(_current_graph_task_id=lambda: -1)
    passes = 0

    def original(within):
        nonlocal passes
        passes, c.now = passes + 1, c.now + REST // 500
        if within:
            backward(False)  # as when a subclass of Tensor passes the call on

    backward = around_backward(c.agent, original)
    for _ in range(100):
        backward(True)
        c.step(REST // 50)
    rows = json.loads(c.agent.outbox.take())
    assert passes == 200 and not c.agent.tally.passing
    assert sum(len(row) == 18 for row in rows) > 80
    assert {row[4] for row in rows} == {2 * (REST // 500)}
    assert {row[3] for row in rows} == {REST // 50 - REST // 500}


@pytest.mark.parametrize("counted", [True, False])
def test_a_pass_within_one_that_did_not_go_through_torch_autograd_is_part_of_it(monkeypatch, counted):
    c = Clocked(monkeypatch)
    c.agent.torch._C = SimpleNamespace(_current_graph_task_id=lambda: 7)

    def original():
        c.now += 30

    backward = around_backward(c.agent, original)
    backward()  # now the agent knows that there are such passes
    c.count()
    if not counted:
        c.agent.tally.wake()
    backward()
    assert c.agent.tally.backward == 0


def test_a_backward_pass_that_raises_is_over(monkeypatch):
    c = Clocked(monkeypatch)
    c.agent.torch._C = SimpleNamespace(_current_graph_task_id=lambda: -1)

    def original():
        raise ZeroDivisionError

    backward = around_backward(c.agent, original)
    for calm in (0, c.now + REST):
        c.agent.tally.calm = calm
        with pytest.raises(ZeroDivisionError):
            backward()
        assert not c.agent.tally.passing


@pytest.mark.parametrize("happens", ["nothing", "detached", "compiled"])
def test_no_module_hook_is_added_after_a_detach_or_kept_beside_compiled_code(monkeypatch, happens):
    c = Clocked(monkeypatch)
    c.agent.torch._C = SimpleNamespace(_current_graph_task_id=lambda: -1)
    c.agent.hooks, removed = [], []
    found = SimpleNamespace(
        hook=SimpleNamespace(remove=lambda: removed.append(1)),
        backward_enters=lambda: None,
        backward_left=lambda: None,
    )
    monkeypatch.setattr(around, "Unlisted", lambda torch, stepped, broke: found)

    def original():
        c.agent.steps.unstepped = SILENT
        c.agent.guard.dead = happens == "detached"

    backward = around_backward(c.agent, original)
    backward()
    assert (c.agent.unlisted is found) == (happens != "detached")
    if happens == "compiled":
        monkeypatch.setattr(around, "compiled_graphs", lambda: 1)
        backward()
        backward()
        assert c.agent.unlisted is None and removed == [1]


@pytest.mark.parametrize(("depth", "want"), [(1, ["module"]), (0, [])])
def test_a_carrier_that_was_in_the_module_where_a_step_ends_enters_it_again(monkeypatch, depth, want):
    c, entered, carrier = Clocked(monkeypatch), [], Carrier.__new__(Carrier)
    carrier.region = SimpleNamespace(depth=depth, enter=lambda module, inputs: entered.append(module))
    c.agent.manager.carrier, c.agent.thread = carrier, object()

    def stepped(optimizer, now):
        carrier.region.depth = 0

    monkeypatch.setattr(c.agent, "_stepped", stepped)
    c.agent.unlisted_stepped(None, "module", ())
    assert entered == want


@pytest.mark.parametrize("happens", ["another before it", "another inside of it", "it raised before"])
def test_a_step_of_several_optimizers_is_one_among_those_that_are_counted(monkeypatch, happens):
    c, other = Clocked(monkeypatch), Optimizer()
    monkeypatch.setattr("agent.agent.nested", lambda: happens == "another inside of it")
    c.count()
    begin, produced = c.agent.tally.begin, c.agent.tally.produced
    if happens == "it raised before":
        c.pre(c.optimizer, (c.optimizer,), c.optimizer.call)
        c.now += 300
    if happens == "another before it":
        c.pre(other, (other,), other.call)
        c.now += 30
        c.post(other, (other,), other.call)
    c.pre(c.optimizer, (c.optimizer,), c.optimizer.call)
    if happens == "another inside of it":
        c.now += 30
        c.pre(other, (other,), other.call)
        c.now += 5
        c.post(other, (other,), other.call)
        assert c.agent.tally.produced == produced
        c.now -= 5
    c.now += 7
    c.post(c.optimizer, (c.optimizer,), c.optimizer.call)
    c.step(REST // 50)
    rows = [row for row in json.loads(c.agent.outbox.take()) if row[0] >= produced]
    assert [row[0] for row in rows] == [produced, produced + 1]
    assert rows[0][1] == c.agent.epoch + begin and rows[1][1] == rows[0][2]
    assert rows[0][5] == (7 if happens == "it raised before" else 37)
    assert not c.agent.steps.running and not c.agent.tally.entered


def test_the_first_optimizers_step_inside_of_another_ends_none(monkeypatch):
    c, other = Clocked(monkeypatch), Optimizer()
    monkeypatch.setattr("agent.agent.nested", lambda: True)
    c.count()
    produced = c.agent.tally.produced
    c.pre(other, (other,), other.call)
    c.step(70)
    c.post(other, (other,), other.call)
    assert c.agent.tally.produced == produced
    c.step(REST // 50)
    assert c.agent.tally.produced == produced + 1


@contextmanager
def hooked():
    """An agent that only has its two hooks on torch's optimizers."""
    from torch.optim import optimizer

    agent = Agent("/nowhere", False)
    agent.thread = SimpleNamespace(ident=0)
    pre, post = counting(agent.tally, agent.clock, agent._pre, agent._post, agent.caught)
    with optimizer.register_optimizer_step_pre_hook(pre), optimizer.register_optimizer_step_post_hook(post):
        yield agent


def test_steps_of_optimizers_that_raise_or_call_their_base_class_count_once():
    torch = pytest.importorskip("torch", reason="needs torch")
    parameters = [torch.nn.Parameter(torch.ones(2))]
    torch.optim.SGD(parameters)  # torch puts its hooks around the base class's step

    class Derived(torch.optim.SGD):
        raises = False

        def step(self, closure=None):
            super().step()
            if self.raises:
                raise ZeroDivisionError

    with hooked() as agent:
        derived, other = Derived(parameters), torch.optim.Adam(parameters)
        for _ in range(6):
            derived.step()
        assert not agent.guard.why and agent.tally.produced == 5  # the first was half seen
        derived.raises = True
        with pytest.raises(ZeroDivisionError):
            derived.step()
        derived.raises = False
        other.step()  # not inside another one
        assert not agent.steps.running
        derived.step()
        assert not agent.guard.why and agent.tally.produced == 6


def test_hooks_may_change_while_a_closure_trains_but_not_while_another_hook_runs():
    torch = pytest.importorskip("torch", reason="needs torch")
    parameter = torch.nn.Parameter(torch.ones(2))

    class Derived(torch.optim.SGD):
        def step(self, closure=None):
            return super().step(closure)

    def before(optimizer, args, kwargs):
        places["hook before"]()

    @torch.no_grad()  # as torch decorates steps themselves
    def decorated(optimizer, args, kwargs):
        places["decorated hook"]()

    places = dict.fromkeys(("hook before", "closure", "decorated hook", "hook after"), lambda: None)

    def closure():
        places["closure"]()
        loss = parameter.sum()
        loss.backward()
        return loss

    for optimizer in (torch.optim.LBFGS([parameter], max_iter=1), Derived([parameter], lr=0.1)):
        optimizer.register_step_pre_hook(before)
        optimizer.register_step_post_hook(decorated)
        optimizer.register_step_post_hook(lambda *_: places["hook after"]())
        in_use = {}
        with ThreadPoolExecutor(1) as other:
            for place in places:
                there, on = threading.Event(), threading.Event()
                places[place] = lambda there=there, on=on: (there.set(), on.wait(60))
                step = other.submit(optimizer.step, closure)
                assert there.wait(60)
                in_use[place] = calling_hooks()
                on.set()
                step.result(60)
                places[place] = lambda: None
            assert not calling_hooks()
        assert in_use == {place: place != "closure" for place in places}


def test_an_agent_that_comes_and_leaves_within_a_closure_counts_the_steps_between():
    torch = pytest.importorskip("torch", reason="needs torch")
    parameter, visit, agents, steps = torch.nn.Parameter(torch.ones(2)), ExitStack(), [], itertools.count()
    optimizer = torch.optim.LBFGS([parameter], max_iter=1)

    def closure():
        step = next(steps)
        if step == 1:
            agents.append(visit.enter_context(hooked()))
        if step == 4:
            visit.close()
        optimizer.zero_grad()
        loss = (parameter**2).sum()
        loss.backward()
        return loss

    for _ in range(6):
        optimizer.step(closure)
    (agent,) = agents
    assert not agent.guard.why and agent.tally.produced == 2  # it saw the first and the last in part


@pytest.mark.parametrize("counted", [True, False])
def test_optimizers_that_step_in_two_threads_at_once_lose_no_step(monkeypatch, counted):
    c, other, here = Clocked(monkeypatch), Optimizer(), threading.get_ident()
    monkeypatch.setattr("agent.steps.stepping_threads", lambda: {here} - {threading.get_ident()})
    c.count()
    produced = c.agent.tally.produced
    if not counted:
        c.agent.tally.wake()
    with ThreadPoolExecutor(1) as second:
        c.pre(c.optimizer, (c.optimizer,), c.optimizer.call)
        c.now += 10
        second.submit(c.pre, other, (other,), other.call).result()
        c.now += 20
        c.post(c.optimizer, (c.optimizer,), c.optimizer.call)
        assert c.agent.tally.produced == produced + 1
        second.submit(c.post, other, (other,), other.call).result()
    assert not c.agent.guard.why and not c.agent.steps.running and not c.agent.tally.entered
    c.step(REST // 50)
    rows = json.loads(c.agent.outbox.take())[produced:]
    assert [row[0] for row in rows] == [produced, produced + 1] and rows[0][5] == 30


@pytest.mark.parametrize("same", [False, True])
def test_optimizers_whose_hooks_overlap_get_one_row_a_step(monkeypatch, same):
    """Another thread enters a step while the hook of this one decides whether to count."""
    c = Clocked(monkeypatch)
    other = c.optimizer if same else Optimizer()
    inside, theirs = {threading.get_ident()}, {}
    monkeypatch.setattr("agent.steps.stepping_threads", lambda: inside - {threading.get_ident()})
    c.count()
    produced = c.agent.tally.produced
    with ThreadPoolExecutor(1) as second:
        inside.add(second.submit(threading.get_ident).result())

        class Keywords(dict):
            asked = False

            def __len__(self):
                if not self.asked:
                    self.asked = True
                    second.submit(c.pre, other, (other,), theirs).result()
                return 0

        ours = Keywords()
        c.pre(c.optimizer, (c.optimizer,), ours)
        assert ours.asked
        c.now += 10
        second.submit(c.post, other, (other,), theirs).result()
        c.now += 20
        c.post(c.optimizer, (c.optimizer,), ours)
    assert c.agent.tally.produced == produced + (2 if same else 1)
    assert not c.agent.guard.why and not c.agent.steps.running and not c.agent.tally.entered
    rows = json.loads(c.agent.outbox.take())[produced:]
    assert [row[5] for row in rows] == ([10, 30] if same else [10 + 30])


def test_a_counted_step_beside_one_that_is_followed_keeps_its_beginning(monkeypatch):
    """Without an interpreter lock, a hook may count a step although another one has begun meanwhile."""
    c, other, inside = Clocked(monkeypatch), Optimizer(), {threading.get_ident()}
    monkeypatch.setattr("agent.steps.stepping_threads", lambda: inside - {threading.get_ident()})
    c.count()
    produced, tally = c.agent.tally.produced, c.agent.tally
    with ThreadPoolExecutor(1) as second:
        inside.add(second.submit(threading.get_ident).result())
        second.submit(c.pre, other, (other,), other.call).result()
        tally.entered, tally.call = c.now, c.optimizer.call
        c.now += 10
        second.submit(c.post, other, (other,), other.call).result()
        assert tally.produced == produced
        c.now += 20
        c.post(c.optimizer, (c.optimizer,), c.optimizer.call)
    assert tally.produced == produced + 1 and not c.agent.steps.running and not tally.entered
    assert json.loads(c.agent.outbox.take())[-1][5] == 10 + 30


def test_a_step_that_raised_in_a_thread_that_lives_on_keeps_none_from_being_counted():
    torch = pytest.importorskip("torch", reason="needs torch")

    class Raises(torch.optim.SGD):
        def step(self, closure=None):
            raise ZeroDivisionError

    parameters = [torch.nn.Parameter(torch.ones(2))]
    first, raises = torch.optim.SGD(parameters), Raises(parameters)
    with hooked() as agent:
        first.step()
        with ThreadPoolExecutor(1) as pool:
            with pytest.raises(ZeroDivisionError):
                pool.submit(raises.step).result()
            assert agent.steps.running
            first.step()
            assert not agent.guard.why and not agent.steps.running and not agent.tally.entered


def test_a_first_optimizer_that_is_no_more_disarms_nothing(monkeypatch):
    c = Clocked(monkeypatch)
    c.count()
    produced, c.optimizer = c.agent.tally.produced, Optimizer()
    c.agent.optimizers.known.clear()
    c.step(REST // 50)  # this asserts that the agent lives
    assert c.agent.tally.first() is c.optimizer and c.agent.tally.produced == produced + 1


def test_a_thread_that_died_within_a_step_keeps_none_from_being_counted(monkeypatch):
    c, other = Clocked(monkeypatch), Optimizer()
    c.count()
    with ThreadPoolExecutor(1) as second:
        second.submit(c.pre, other, (other,), other.call).result()
    assert c.agent.steps.running
    c.step(REST // 50)
    assert not c.agent.steps.running and not c.agent.tally.entered


def test_a_closure_among_counted_steps_is_followed(monkeypatch):
    c = Clocked(monkeypatch)
    c.count()

    def closure():
        c.now += 40

    args, kwargs = c.pre(c.optimizer, (c.optimizer, closure), {})
    c.now += 5
    args[1]()
    c.post(c.optimizer, args, kwargs)
    rows = json.loads(c.agent.outbox.take())
    assert rows[-1][5] == 5


def test_a_child_of_fork_counts_with_the_hooks_of_its_parent(monkeypatch):
    c = Clocked(monkeypatch)
    c.count()
    c.agent.tally.passing.add(1)  # it was forked in the middle of a backward pass
    monkeypatch.setattr(c.agent, "_expect_the_end", lambda: None)
    tally, clock = c.agent.tally, c.agent.clock
    c.agent._forked()
    c.agent.clock = c.agent.windows.clock = c.agent.totals.clock = clock
    c.agent.thread, c.agent.manager.next_work = SimpleNamespace(ident=0), 1 << 62
    c.agent.totals._take_known = lambda now: None
    assert c.agent.tally is tally and not tally.rows and not tally.passing
    c.count()
    assert tally.produced == 19 and len(c.agent.outbox.take().split("],[")) == 19


def test_a_long_step_is_never_only_counted(monkeypatch):
    c = Clocked(monkeypatch)
    for _ in range(10):
        c.step(REST)
    assert all(len(row) > COUNTED for row in c.agent.tally.rows)


def test_what_is_wanted_is_taken_up_soon_and_a_captured_step_in_time(monkeypatch):
    c = Clocked(monkeypatch)
    begun = []
    c.agent.windows.begin = lambda now: begun.append(c.agent.outbox.produced)
    for _ in range(20):
        c.step(REST // 50)
    c.agent.wishes.every, seen = 7, c.agent.outbox.produced
    for _ in range(100):
        c.step(REST // 50)
    due = [n for n in range(seen + 50, seen + 100) if n % 7 == 0]
    assert set(due) <= set(begun)


def test_an_order_is_taken_up_at_the_end_of_the_step_that_runs(monkeypatch):
    c = Clocked(monkeypatch)
    begun = []
    c.agent.windows.begin = lambda now: begun.append(c.agent.outbox.produced)
    c.count()
    text = b'{"id": 3, "do": "describe", "steps": 2}'
    c.agent.link.unread += struct.pack("<IB", len(text) + 1, wire.ORDER) + text
    c.agent.sender._hear()
    seen = c.agent.outbox.produced
    c.step(REST // 50)
    assert begun[-1] == seen + 1 and len(c.agent.wishes.want) == 1


def test_a_child_of_fork_notices_and_another_optimizer_ends_no_step(monkeypatch):
    c = Clocked(monkeypatch)
    for _ in range(20):
        c.step(REST // 50)
    other, seen = Optimizer(), c.agent.outbox.produced
    c.pre(other, (other,), other.call)
    c.post(other, (other,), other.call)
    assert c.agent.outbox.produced == seen
    forked = []
    monkeypatch.setattr(c.agent, "_forked", lambda: forked.append(c.agent.outbox.produced))
    c.agent.pid = -1
    for _ in range(60):
        c.step(REST // 50)
    assert forked and forked[0] - seen <= 51


def test_an_import_that_ends_takes_torch_out_of_the_table_for_a_moment(monkeypatch):
    torch = SimpleNamespace(__spec__=SimpleNamespace(_initializing=False))
    monkeypatch.setitem(sys.modules, "torch", None)
    back = threading.Timer(0.05, lambda: monkeypatch.setitem(sys.modules, "torch", torch))
    back.start()
    assert not process.importing(torch)
    back.join()
    monkeypatch.setattr(process, "time", SimpleNamespace(sleep=lambda seconds: None))
    with pytest.raises(Refused):
        process.importing(SimpleNamespace())
