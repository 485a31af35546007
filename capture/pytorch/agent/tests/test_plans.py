"""The parts of carrying plans out that need no torch."""

from types import SimpleNamespace

import pytest

from agent.carry import Iteration
from agent.draws import draws
from agent.host import host_room, local_ranks
from agent.patch import Patches
from agent.values import expect_unchanged


def test_a_plans_first_three_steps_and_one_of_fifty_are_compared():
    def checks(k):
        return Iteration(SimpleNamespace(plan={}, iterations=k)).checks

    assert [k for k in range(160) if checks(k)] == [0, 1, 2, 50, 100, 150]


def test_a_saved_tensor_that_was_changed_raises_as_without_hooks():
    expect_unchanged(SimpleNamespace(_version=2), 2, (1,))
    expect_unchanged(SimpleNamespace(_version=2), -1, (1,))  # an inference tensor counts nothing
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
