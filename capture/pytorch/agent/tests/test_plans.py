"""Tests the parts of running plans that need no torch."""

import contextlib
import threading
from types import SimpleNamespace

import pytest

from agent.carry import Iteration
from agent.crossings import Crossings
from agent.draws import draws
from agent.host import host_room, local_ranks
from agent.patch import Patches
from agent.region import COMPILED, Region
from agent.rerun import updated
from agent.same import Same
from agent.sizes import Sizes
from agent.steps import Steps
from agent.streams import Streams
from agent.tally import Tally
from agent.values import Value, expect_unchanged, movable, space_for


def test_a_plans_first_three_steps_and_one_of_fifty_are_compared():
    def checks(k):
        return Iteration(SimpleNamespace(plan={}, iterations=k)).checks

    assert [k for k in range(160) if checks(k)] == [0, 1, 2, 50, 100, 150]


def test_steps_end_where_the_fewest_bytes_wait_for_their_backward_pass():
    critic, generator, third = Weak(), Weak(), Weak()
    crossings, steps = Crossings(), Steps(Tally(0))
    assert steps.ends(critic)
    crossings.save(1)
    crossings.save(2)
    crossings.load(2, 5)
    crossings.step(id(critic))
    crossings.save(3)
    crossings.load(1, 100)
    crossings.load(1, 100)  # a view of the same storage
    crossings.load(3, 7)
    crossings.load(4, 9)  # nobody saw it saved
    crossings.step(id(generator))
    assert crossings.bytes == {id(critic): 100, id(generator): 0}
    steps.end_elsewhere({id(critic): 100}, [critic, third])  # the other one did not step
    assert steps.ends(critic)
    steps.end_elsewhere(crossings.bytes, [critic, generator, third])
    assert steps.tally.begin is None
    assert not steps.ends(critic)
    assert steps.ends(generator)
    steps.tally.begin = 3
    steps.end_elsewhere({id(critic): 0, id(generator): 0}, [critic, generator])  # a tie: it stays
    assert steps.tally.begin == 3
    assert steps.ends(generator)


class Weak:
    """An object that weak references can refer to."""


def test_a_saved_tensor_that_was_changed_raises_as_without_hooks():
    expect_unchanged(SimpleNamespace(_version=2), 2, (1,))
    expect_unchanged(SimpleNamespace(_version=2), -1, (1,))  # an inference tensor has no version counter
    with pytest.raises(RuntimeError, match=r"shape \[1\] is at version 2; expected version 1"):
        expect_unchanged(SimpleNamespace(_version=2), 1, (1,))


@pytest.mark.parametrize(
    ("chance", "args", "kwargs", "drawn"),
    [
        (None, (), {}, False),
        ((), (), {}, True),
        ((1, "dropout_p", 0.0), (0, 0.5), {}, True),
        ((1, "dropout_p", 0.0), (0,), {"dropout_p": 0.0}, False),
        ((1, "dropout_p", 0.0), (0,), {}, False),
        ((1, "dropout_p", None), (0,), {}, True),
    ],
)
def test_whether_a_call_draws(chance, args, kwargs, drawn):
    assert draws(chance, args, kwargs) is drawn


class Several:
    def __bool__(self):
        raise RuntimeError("Boolean value of Tensor with more than one value is ambiguous")


def test_only_of_a_normalisation_in_training_statistics_are_updated():
    t, name = Several(), "aten::native_batch_norm"
    assert updated(name, (t, t, t, t, t, True, 0.1)) == (3, 4)
    assert updated(name, (t, t, t, t, t, False, 0.1)) == ()
    assert updated("aten::mkldnn_rnn_layer", (t, t, t, t, t, t, t)) == ()


class Owner:
    def method(self):
        return "theirs"


def test_what_was_put_in_a_methods_place_goes_again():
    theirs, patches = Owner.method, Patches()
    patches.put(Owner, "method", lambda original: lambda self: "ours around " + original(self))
    assert Owner().method() == "ours around theirs"
    assert patches.undo() == []
    assert Owner.method is theirs


def test_what_somebody_has_wrapped_since_stays_and_is_named():
    theirs, patches = Owner.method, Patches()
    patches.put(Owner, "method", lambda original: lambda self: "ours")
    ours = Owner.method
    Owner.method = lambda self: "somebody's around " + ours(self)
    try:
        assert patches.undo() == ["method"]
        assert Owner().method() == "somebody's around ours"
    finally:
        Owner.method = theirs


def saved(size):
    storage = SimpleNamespace(nbytes=lambda: size)
    return SimpleNamespace(layout="strided", untyped_storage=lambda: storage)


def test_larger_tensors_of_a_step_like_the_plans_are_noted_and_told_once():
    sizes = Sizes(SimpleNamespace(strided="strided"), {"sizes": [10, -1, 30]})
    for n, size in enumerate((12, 99, 30, 7)):
        sizes.saved(n, saved(size))
    sizes.next(alike=False)  # another kind of step
    assert sizes.known == [10, -1, 30]
    assert not sizes.news
    sizes.next(alike=True)  # in which nothing was saved
    assert not sizes.news
    for n, size in enumerate((12, 99, 30)):
        sizes.saved(n, saved(size))
    sizes.next(alike=True)
    assert sizes.known == [12, -1, 30]
    assert (sizes.news, sizes.steps) == (True, 1)
    sizes.saved(0, saved(12))  # as large as it was
    sizes.next(alike=True)
    assert sizes.steps == 1


def test_a_larger_tensor_gets_a_place_that_the_next_ones_take_and_none_where_there_is_no_room(monkeypatch):
    made = []

    class Torch:
        uint8, no_grad = "uint8", contextlib.nullcontext

        def empty(self, size, **where):
            made.append((size, where["pin_memory"]))
            return range(size)

    monkeypatch.setitem(Sizes.place.__globals__, "host_room", lambda: 100)
    monkeypatch.setitem(Sizes.place.__globals__, "without_dispatch", lambda torch: contextlib.nullcontext())
    sizes = Sizes(Torch(), {"device": "cuda:0"})
    assert len(sizes.place(0, 20)) == 20
    assert len(sizes.place(0, 15)) == 15
    assert len(sizes.place(512, 15)) == 15
    assert len(sizes.place(0, 30)) == 30
    assert made == [(20, True), (15, True), (30, True)]
    assert sizes.place(1024, 91) is None


def test_a_hosts_room_is_the_least_of_what_limits_it(tmp_path):
    files = {
        "proc/meminfo": "MemTotal: 9 kB\nMemAvailable: 8 kB\n",
        "proc/self/cgroup": "0::/job\n",
        "sys/fs/cgroup/memory.max": "max\n",
        "sys/fs/cgroup/job/memory.max": "6000\n",
        "sys/fs/cgroup/job/memory.current": "2000\n",
        "sys/fs/cgroup/job/memory.stat": "anon 1\ninactive_file 500\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert host_room(str(tmp_path)) == 4500
    (tmp_path / "proc/self/cgroup").unlink()
    assert host_room(str(tmp_path)) == 8192
    assert host_room(str(tmp_path / "nowhere")) is None


@pytest.mark.parametrize(("said", "ranks"), [("", 1), ("4", 4), ("0", 1), ("x", 1)])
def test_ranks_of_this_host(monkeypatch, said, ranks):
    monkeypatch.setenv("LOCAL_WORLD_SIZE", said)
    assert local_ranks() == ranks


class Storage:
    def __init__(self, address, size=8):
        self._cdata, self.size = address, size

    def nbytes(self):
        return self.size


def test_an_address_that_is_used_again_is_another_value():
    it = Iteration(SimpleNamespace(plan={}, iterations=0))
    first = Storage(64)
    value = it.value(first)
    assert it.known(first) is value
    assert it.known(Storage(64)) is None
    assert it.known(Storage(128)) is None
    del value
    assert it.known(first) is None  # nobody needs it


class Tensor:
    layout = "strided"

    def __init__(self, **what):
        self.what = what

    def is_conj(self):
        return self.what.get("conj", False)

    def is_neg(self):
        return self.what.get("neg", False)

    def is_inference(self):
        return self.what.get("inference", False)


class Subclass(Tensor):
    pass


def test_what_is_more_than_its_bytes_stays():
    sparse = Tensor()
    sparse.layout = "sparse"
    stays = [Tensor(conj=True), Tensor(neg=True), Tensor(inference=True), Subclass(), sparse]
    assert [movable(t, (Tensor,), "strided") for t in [Tensor(), *stays]] == [True] + [False] * 5


def test_space_is_of_the_type_where_the_bytes_are_a_multiple_of_its():
    torch = SimpleNamespace(empty=lambda n, dtype, device: (n, dtype), uint8="uint8")
    four = SimpleNamespace(itemsize=4)
    assert space_for(torch, 64, four, "cpu") == (16, four)
    assert space_for(torch, 66, four, "cpu") == (66, "uint8")


class Stream:
    """A stream that logs its work."""

    def __init__(self, name, log):
        self.name, self.log, self.device = name, log, "cuda:0"

    def wait_stream(self, other):
        self.log.append((self.name, "waits for", other.name))

    def wait_event(self, event):
        self.log.append((self.name, "waits for", event))

    def record_event(self):
        self.log.append((self.name, "marks"))
        return "event of " + self.name


class Bytes:
    device = "cuda:0"

    def __init__(self, name, log, now):
        self.name, self.log, self.now = name, log, now

    def copy_(self, source, non_blocking=False):
        self.log.append((self.now[-1].name, "copies", source.name, "to", self.name, non_blocking))

    def record_stream(self, stream):
        self.log.append((self.name, "is used on", stream.name))


@pytest.fixture
def gpu():
    """Streams of a GPU, a log of what was done on which, and the stack of current streams."""
    log = []
    main = Stream("main", log)
    now = [main]

    @contextlib.contextmanager
    def stream(s):
        now.append(s)
        yield
        now.pop()

    names = iter(("out", "back"))
    cuda = SimpleNamespace(
        current_stream=lambda device: now[-1],
        stream=stream,
        Stream=lambda device: Stream(next(names), log),
        is_initialized=lambda: True,
        is_current_stream_capturing=lambda: False,
    )
    streams = Streams(SimpleNamespace(cuda=cuda))
    streams.main = main
    streams.open(SimpleNamespace(type="cuda"))
    return streams, log, now


def test_copies_wait_for_compute_and_memory_for_its_copy(gpu):
    streams, log, now = gpu
    host, flat = Bytes("host", log, now), Bytes("flat", log, now)
    value = Value(Storage(1))
    value.base, value.done = flat, streams.copy_out(host, flat)
    streams.release(value)
    assert value.base is None
    assert log == [
        ("out", "waits for", "main"),
        ("out", "copies", "flat", "to", "host", True),
        ("out", "marks"),
        ("main", "waits for", "event of out"),
    ]
    del log[:]
    assert streams.copy_back(flat, host) == "event of back"
    assert log == [
        ("back", "waits for", "main"),
        ("back", "copies", "host", "to", "flat", True),
        ("back", "marks"),
    ]


def test_who_reads_elsewhere_waits_and_marks_the_memory(gpu):
    streams, log, now = gpu
    value = Value(Storage(1))
    value.base, value.arrived, value.stream = Bytes("base", log, now), "event", streams.main
    streams.meet(value)
    assert log == [("main", "waits for", "event")]
    del log[:]
    streams.follow()
    assert log == []
    now.append(Stream("side", log))
    assert streams.elsewhere()
    streams.meet(value)
    assert log == [("side", "waits for", "main"), ("base", "is used on", "side")]
    del log[:]
    streams.follow()
    assert log == [("side", "waits for", "main")]
    with streams.there():
        assert not streams.elsewhere()
    del log[:]
    streams.torch.cuda.is_current_stream_capturing = lambda: True
    streams.meet(value)
    assert log == [("base", "is used on", "side")], "a wait would become part of the graph"


def test_without_a_gpu_copies_are_done_at_once():
    log = []
    now = [Stream("cpu", log)]
    streams = Streams(SimpleNamespace())
    assert not streams.elsewhere()
    assert streams.copy_out(Bytes("host", log, now), Bytes("flat", log, now)) is None
    assert streams.copy_back(Bytes("flat", log, now), Bytes("host", log, now)) is None
    assert [row[-1] for row in log] == [False, False]


class Torch:
    """A torch that counts hooks on saved tensors."""

    uint8 = "uint8"

    def __init__(self):
        self.pushed, self.why, self.grad = [], None, True
        self._C = SimpleNamespace(
            _DisableTorchDispatch=contextlib.nullcontext,
            _current_graph_task_id=lambda: -1,
            _autograd=SimpleNamespace(
                _push_saved_tensors_default_hooks=lambda *hooks: self.pushed.append(hooks),
                _pop_saved_tensors_default_hooks=lambda: self.pushed.pop(),
                _top_saved_tensors_default_hooks=lambda traces: self.pushed[-1] if self.pushed else None,
                _saved_tensors_hooks_get_disabled_error_message=lambda: self.why,
                _saved_tensors_hooks_disable=self.disable,
                _saved_tensors_hooks_enable=lambda: None,
            ),
        )
        self.no_grad = contextlib.nullcontext

    def disable(self, why):
        if self.pushed:
            raise RuntimeError(why)

    def is_grad_enabled(self):
        return self.grad

    def stack(self, flags):
        return SimpleNamespace(tolist=lambda: flags)


class Carrier:
    """The part of a carrier that a region uses."""

    def __init__(self):
        self.torch, self.why, self.now = Torch(), "", SimpleNamespace(why="")
        self.entered, self.lefts, self.ends = [], 0, []
        self.places = SimpleNamespace(known=False, running=[])
        self.region = Region(self)

    def entering(self, module):
        self.entered.append(module)
        return self.hooks()

    def hooks(self):
        return self.packs, "unpack"

    def packs(self, t):
        """Would pack a tensor."""

    def left(self, inputs, outputs):
        self.lefts += 1

    def skip(self, why):
        self.now.why = why

    def end(self, it, why):
        self.ends.append(why)

    def broke(self, it, error):
        raise error


@pytest.fixture
def carrier():
    carrier = Carrier()
    carrier.region.thread = threading.get_ident()
    return carrier


def test_a_region_is_the_outermost_module(carrier):
    region, torch = carrier.region, carrier.torch
    region.enter("outer", ())
    region.enter("inner", ())
    assert torch.pushed == [(carrier.packs, "unpack")]
    region._leave("inner", (), ())
    assert carrier.lefts == 0
    region._leave("outer", (), ())
    assert (torch.pushed, carrier.entered, carrier.lefts) == ([], ["outer"], 1)
    region._leave("more", (), ())
    assert (region.depth, carrier.lefts) == (0, 1)


def test_a_region_is_one_threads(carrier):
    region = carrier.region
    region.thread += 1
    region.enter("another thread's", ())
    assert region.depth == 0
    region.thread, carrier.torch.grad = 0, False
    region.enter("a validation pass", ())
    assert (region.depth, region.thread) == (0, 0)
    carrier.torch.grad = True
    region.enter("the first that trains", ())
    assert (region.depth, region.thread) == (1, threading.get_ident())


def test_what_was_left_without_a_word_is_taken_down_at_the_steps_end(carrier):
    carrier.region.enter("module", ())
    carrier.region.unwind()
    assert (carrier.torch.pushed, carrier.region.depth, carrier.region.pushed) == ([], 0, False)


def test_hooks_stay_from_step_to_step_where_torch_tells_which_are_innermost(carrier):
    region, torch = carrier.region, carrier.torch
    theirs = ("their pack", "their unpack")
    region.lasts = True
    region.extend()
    region.extend()
    ours = torch.pushed[0]
    assert torch.pushed == [ours]
    region.enter("module", ())
    region._leave("module", (), ())
    region.unwind()
    assert (torch.pushed, carrier.lefts, carrier.now.why) == ([ours], 1, "")
    torch.pushed.append(theirs)
    region.enter("module", ())
    region._leave("module", (), ())
    assert (torch.pushed, "hooks of its own" in carrier.now.why) == ([ours, theirs], True)
    assert not region.stray()
    region.remove()
    assert region.stray()
    assert torch.pushed == [ours, theirs]  # theirs would be popped instead
    torch.pushed.pop()
    assert region.stray()
    assert torch.pushed == []


def test_hooks_that_a_thread_or_a_child_inherits_are_popped_where_they_are_called(carrier):
    region, torch = carrier.region, carrier.torch
    region.lasts = True
    for there in ("thread", "pid"):
        region.extend()
        assert (len(torch.pushed), region.stray()) == (1, False)
        setattr(region, there, getattr(region, there) + 1)
        assert (region.stray(), torch.pushed) == (True, [])
        setattr(region, there, getattr(region, there) - 1)
        region.ours = None


def test_hooks_are_not_pushed_between_modules_on_another_thread_or_inside_of_others(carrier):
    region, torch = carrier.region, carrier.torch
    region.lasts, region.thread = True, threading.get_ident() + 1
    region.extend()
    region.thread, torch.why = threading.get_ident(), "forbidden for a while"
    region.extend()
    assert torch.pushed == []
    torch.why = None
    torch.pushed.append("the program's")
    region.extend()
    assert torch.pushed == ["the program's"]


def test_nothing_is_pushed_inside_of_others_hooks(carrier):
    carrier.torch.pushed.append("the program's")
    carrier.region.enter("module", ())
    assert carrier.torch.pushed == ["the program's"]
    assert "hooks of its own" in carrier.now.why
    carrier.region._leave("module", (), ())
    assert carrier.torch.pushed == ["the program's"]


def test_hooks_go_before_torchs_functions_look(carrier):
    disable = carrier.region._disabling(carrier.torch.disable)
    carrier.region.enter("module", ())
    disable("torch.func")
    assert carrier.now.why == "func inside"
    carrier.region._leave("module", (), ())
    assert carrier.torch.pushed == []


def test_a_compiled_module_ends_a_plan(carrier):
    carrier.region.enter(type("OptimizedModule", (), {})(), ())
    assert carrier.ends == [COMPILED]


def test_what_is_no_more_the_same_is_named_once():
    same = Same(Torch())
    assert same.verdict() == (0, [])
    same.compared = [(4, False), (7, True), (2, True)]
    assert same.verdict() == (3, [7, 2])
    assert same.verdict() == (0, [])
