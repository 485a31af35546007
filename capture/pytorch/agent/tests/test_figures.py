"""Tests the rows of windows and the figures of steps, without torch."""

from types import SimpleNamespace

from agent.modules import Modules
from agent.phases import BACKWARD, FORWARD, OPTIMIZER
from agent.rows import Rows, _one_clock
from agent.storages import Addresses
from agent.totals import EXPECTED, Pools, _cost
from agent.traits import Traits
from agent.uses import Uses


def op(at, stream=0):
    return ("o", at, 1, "mul", "forward", "", [], [], [], True, stream, False)


def test_what_a_device_runs_late_stays_in_its_step():
    rows = [op(10), op(20), ("f", 0, 25), op(30)]
    ran = {0: ("cuda:0", 100, 50), 1: ("cuda:0", 150, 50), 3: ("cuda:0", 200, 50)}
    bounds = _one_clock(rows, ran, [(5, 28), (28, 40)])
    assert [row[1] for row in rows if row[0] == "o"] == [100, 150, 200]
    freed = rows[2][2]
    assert 150 <= freed < bounds[0][1] <= 200
    assert bounds[0][1] == bounds[1][0]
    assert bounds[1][1] >= 250


def test_rows_beyond_the_limit_are_counted_and_end_the_window(monkeypatch):
    monkeypatch.setattr(Rows, "limit", 2)
    rows = Rows(lambda: 0, 0, None)
    for _ in range(2):
        rows.add(op(1))
    assert not rows.stopped
    rows.add(op(1))
    assert (len(rows.list), rows.lost, rows.stopped) == (2, 1, True)


def test_no_time_passes_while_training_is_held_up():
    rows = Rows(lambda: 0, 100, None)
    rows.paused(120, 150)
    rows.paused(160, 165)
    assert [rows.at(t) for t in (110, 155, 170)] == [10, 25, 35]


def known(*born):
    """Storages, with the phases in which they were made."""
    there = list(range(len(born)))
    return SimpleNamespace(
        born=list(born), category={}, label={}, refilled=set(), idle=set(), there=lambda: there
    )


def test_what_is_there_when_a_backward_pass_begins_was_saved_for_it():
    uses = Uses(known(FORWARD, BACKWARD, None, FORWARD))
    uses.storages.there = lambda: [0, 1, 2]
    uses.runs(FORWARD)
    uses.runs(OPTIMIZER)
    assert uses.saved == set()
    uses.runs(BACKWARD)
    assert uses.saved == {0}
    uses.storages.there = lambda: [3]
    uses.runs(BACKWARD)  # the pass goes on
    assert uses.saved == {0}
    assert [uses.category(n) for n in range(4)] == ["activation", "autograd_detail", "input", "temporary"]


def test_what_backward_reads_is_an_activation_and_what_it_fills_a_bucket():
    uses = Uses(known(FORWARD, None, None, FORWARD))
    uses.note(FORWARD, FORWARD, {2}, {2}, set())
    uses.note(BACKWARD, BACKWARD, {0}, {0}, {1, 2})
    uses.note(BACKWARD, FORWARD, {3}, {3}, set())  # a checkpoint's own
    assert [uses.category(n) for n in range(4)] == ["activation", "gradient", "input", "temporary"]
    uses.storages.refilled.add(2)
    uses.storages.category[0] = "input"
    assert [uses.category(n) for n in (0, 2)] == ["input", "temporary"]


def test_an_average_of_weights_is_read_beside_them_and_changed_where_no_module_runs():
    uses = Uses(known(None, None, None, None))
    uses.between({0: 8, 1: 8, 2: 4}, {0}, set())
    uses.between({1: 8, 2: 4, 3: 8}, set(), {1, 2, 3})
    assert [uses.category(n) for n in range(1, 4)] == ["parameter", "input", "input"]


def test_a_parameter_that_no_module_runs_is_one_unless_fsdp_fills_it_again():
    uses = Uses(known(None, None))
    uses.storages.idle.update([0, 1])
    uses.storages.refilled.add(1)
    assert [uses.category(number) for number in range(2)] == ["parameter", "temporary"]


def test_a_gradient_has_its_parameters_name():
    uses = Uses(known(None, None))
    uses.storages.label[0], uses.gradient_of[1] = "head.weight", 0
    assert (uses.label(0), uses.label(1)) == ("head.weight", "head.weight")


def test_a_storage_that_is_the_same_keeps_its_address():
    addresses = Addresses()
    first = addresses.fresh(1000)
    assert addresses.fresh(1) == first + 1024
    addresses.last = {77: (first, 1000)}
    assert addresses.of(77, 1000) == first
    assert addresses.of(77, 999) != first


def test_one_long_measurement_counts_for_little():
    assert _cost(10**9, 0) == 2 * EXPECTED
    assert _cost(10**9, 100) == 200
    assert _cost(50, 100) == 50


def test_private_pools_are_counted_by_device():
    segment = {"device": 0, "total_size": 100, "active_size": 40, "segment_pool_id": (0, 1)}
    pools = Pools()
    pools.count([segment, dict(segment, device=1), dict(segment, segment_pool_id=(0, 0))], 0)
    assert pools.seen[0] == 60


def test_pools_that_no_list_tells_of_are_not_asked_for_again():
    def snapshot():
        raise RuntimeError("no list")

    pools = Pools()
    pools.take(SimpleNamespace(cuda=SimpleNamespace(memory_snapshot=snapshot)), 0, lambda: 5)
    assert pools.seen == (-1, -1)
    assert pools.next > 1 << 60


class Inner:
    pass


class Net:
    """A module with two submodules, one of which has no name here."""

    def __init__(self):
        self.inner = Inner()

    def named_modules(self):
        return [("", self), ("inner", self.inner)]


def test_a_backward_op_belongs_to_the_module_that_made_its_node():
    numbers, node = iter((8, 9, 10)), [None]
    modules = Modules(
        SimpleNamespace(
            _C=SimpleNamespace(_current_autograd_node=lambda: node[0]),
            autograd=SimpleNamespace(_get_sequence_nr=lambda: next(numbers)),
        )
    )
    net = Net()
    assert modules.name(net).name == "Net"
    modules.running += [modules.names[id(net)], modules.names[id(net.inner)]]
    assert modules.current() == "inner"  # has made node 7
    modules.running.pop()
    assert modules.current() == "Net"
    modules.running.pop()
    assert modules.current() == ""
    assert modules.behind() == ""
    for number, name in ((7, "inner"), (8, "Net"), (9, ""), (10, "")):
        node[0] = SimpleNamespace(_sequence_nr=lambda number=number: number)
        assert modules.behind() == name


def traits(name, *writes):
    arguments = [
        SimpleNamespace(name="a%d" % k, alias_info=SimpleNamespace(is_write=write), has_default_value=None)
        for k, write in enumerate(writes)
    ]
    func = SimpleNamespace(_schema=SimpleNamespace(name=name, arguments=arguments, returns=()), tags=())
    return Traits(func, SimpleNamespace(Tag=SimpleNamespace(nondeterministic_seeded="seeded")))


def test_what_an_op_writes_is_what_its_schema_says():
    add = traits("aten::add_", True, False)
    assert (add.name, add.written, add.overwrites) == ("add_", [(0, "a0")], False)
    assert traits("aten::copy_", True, False).overwrites
    reduce = traits("c10d::allreduce_", False)
    assert (reduce.name, reduce.written, reduce.collective) == ("c10d::allreduce_", [(0, "a0")], True)
    assert traits("c10d::barrier", False).written == []
    assert traits("aten::zeros_like", False).shapes
    assert traits("aten::new_empty", False).shapes
    assert traits("profiler::_record_function_enter_new", False).skip
