"""Tests the ring that outlives the process, without torch or a viewer."""

import errno
import os
import struct

import pytest

from agent import ring as module
from agent.outbox import Outbox
from agent.ring import RING_BYTES, RING_HEAD, RING_SLOT, RING_SLOTS, Ring, unnamed_file
from agent.tally import WHOLE_ROW, Tally, counting

pytestmark = pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="needs Linux")


@pytest.fixture
def ring():
    r = Ring(Tally(0), 7)
    r.open()
    yield r
    r.close()


def content(r):
    return os.pread(r.fd, RING_BYTES + 1, 0)


def slot(r, k):
    return struct.unpack_from("%dq" % RING_SLOT, content(r), 8 * (RING_HEAD + k * RING_SLOT))


def whole(tally):
    tally.add((tally.produced, *range(100, 99 + WHOLE_ROW)))


def open_files():
    return len(os.listdir("/proc/self/fd"))


def test_the_head_says_what_the_slots_are(ring):
    b = content(ring)
    assert len(b) == RING_BYTES >= 8 * (RING_HEAD + RING_SLOTS * RING_SLOT)
    assert struct.unpack_from("8s5q", b) == (b"gmt-ring", 1, RING_SLOTS, 8 * RING_SLOT, 7, 0)
    ring.sent(12)
    assert struct.unpack_from("q", content(ring), 40) == (12,)


def test_a_row_stands_between_its_numbers_and_the_ring_wraps(ring):
    for _ in range(RING_SLOTS + 2):
        whole(ring.tally)
    last = RING_SLOTS + 1
    row = (last + 1, WHOLE_ROW, last, *range(100, 99 + WHOLE_ROW), last + 1)
    assert slot(ring, 1)[: len(row)] == row
    assert slot(ring, 2)[0] == 3


def test_a_step_that_was_only_counted_is_written_before_the_program_goes_on(ring):
    tally, optimizer = ring.tally, type("Optimizer", (), {})()
    pre, post = counting(tally, iter([5, 9, 11]).__next__, None, None, lambda e: True)
    tally.ends_with(optimizer)
    tally.rest(1000, 100)
    kwargs = {}
    pre(optimizer, (optimizer,), kwargs)
    post(optimizer, (optimizer,), kwargs)
    assert slot(ring, 0)[:8] == (1, 5, 0, 9, 0, 4, 0, 1)
    assert tally.rows == [(0, 0, 9, 0, 4, 0)]


def test_a_forked_child_does_not_write_into_its_parents_ring(ring):
    whole(ring.tally)
    before = content(ring)
    child = os.fork()
    if child == 0:
        whole(ring.tally)
        os._exit(0 if ring.tally.produced == 2 else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert content(ring) == before
    whole(ring.tally)
    assert content(ring) != before


def test_a_figure_that_does_not_fit_ends_the_ring_and_not_the_agent(ring):
    whole(ring.tally)
    ring.tally.add((1, *[1 << 80] * (WHOLE_ROW - 1)))
    assert ring.tally.produced == 2 and len(ring.tally.rows) == 2
    assert content(ring)[:8] == bytes(8)
    whole(ring.tally)


def test_a_viewer_that_has_received_nothing_begins_after_the_steps_of_the_one_before():
    box = Outbox(Tally(0))
    box.ring.open()
    told = []
    for what in (box.arrived, box.viewer_left):
        whole(box.tally)
        box.take()
        told.append(struct.unpack_from("q", content(box.ring), 40)[0])
        what()
        told.append(struct.unpack_from("q", content(box.ring), 40)[0])
    box.ring.close()
    assert told == [0, 1, 1, 2]


def test_nothing_is_left_of_it():
    before = open_files()
    r = Ring(Tally(0), 7)
    r.open()
    assert open_files() != before
    r.close()
    whole(r.tally)
    r.sent(1)
    assert open_files() == before and r.tally.view is None


@pytest.mark.parametrize("how", ["no descriptors", "no room", "no wiping", "another system"])
def test_where_there_can_be_none_the_agent_goes_on_without(monkeypatch, how):
    def fails(*_):
        raise OSError(errno.EMFILE, "fails")

    before = open_files()
    if how == "no descriptors":
        monkeypatch.setattr(module.os, "memfd_create", fails)
    elif how == "no room":
        monkeypatch.setattr(module.os, "pwrite", fails)
    elif how == "no wiping":
        monkeypatch.setattr(module, "WIPE_ON_FORK", 12345)
    else:
        monkeypatch.setattr(module.sys, "platform", "darwin")
    r = Ring(Tally(0), 7)
    r.open()
    assert r.fd == -1 and r.tally.view is None and open_files() == before
    whole(r.tally)
    assert r.tally.produced == 1


def test_a_python_without_memfd_takes_a_file_in_memory_without_a_name(monkeypatch):
    monkeypatch.delattr(module.os, "memfd_create")
    before = os.listdir("/dev/shm")
    os.close(unnamed_file())
    r = Ring(Tally(0), 7)
    r.open()
    assert r.fd >= 0 and os.listdir("/dev/shm") == before
    whole(r.tally)
    assert slot(r, 0)[0] == 1
    r.close()
