"""Tests frames to the viewer and orders from it, without torch or a socket."""

import json
import struct
from types import SimpleNamespace

import pytest

from agent import wire
from agent.hello import hello
from agent.link import Bell, Link
from agent.optimizers import Optimizers
from agent.outbox import Outbox
from agent.says import SENTENCES, Says, told
from agent.send import LATEST, MAX_UNSENT, SOON, SOONEST, STEPS_SHARE, Sender
from agent.tally import MAX_STEPS, Tally
from agent.wishes import Wishes


class Socket:
    def close(self):
        pass


class Viewed(Sender):
    """A Sender whose viewer has been welcomed."""

    def __init__(self):
        link, manager = Link("/nowhere", Bell()), SimpleNamespace(offloads=False)
        windows = SimpleNamespace(ready=[], next_ready=lambda: None, busy=lambda: False, lasted=0)
        totals = SimpleNamespace(device=None, room=-1, optimizers=Optimizers())
        tally = Tally(None)
        outbox, wishes = Outbox(tally), Wishes(tally)
        Sender.__init__(self, SimpleNamespace(), 0, link, outbox, wishes, windows, manager, totals)
        link.sock, self.welcome, self.told = Socket(), True, self._changing()

    def hear(self, kind, payload):
        self.link.unread += struct.pack("<IB", len(payload) + 1, kind) + payload
        self._hear()

    def hung_up(self):
        return self.link.sock is None

    def frames(self):
        """The frames that wait to be written, as kinds and payloads."""
        out, waits = [], self.link.out
        while waits:
            size, kind = struct.unpack_from("<IB", waits)
            out.append((kind, json.loads(bytes(waits[5 : 4 + size]))))
            del waits[: 4 + size]
        return out


def order(**told):
    return json.dumps(told).encode()


def test_a_frame_is_its_length_its_kind_and_its_payload():
    link = Link("/nowhere", Bell())
    link.frame(wire.NOTICE, {"text": "t"})
    assert bytes(link.out) == struct.pack("<IB", 13, wire.NOTICE) + b'{"text":"t"}'


def waits(s, rows=0):
    """How long a sender waits after it has sent some steps to a viewer that reads everything."""
    out = []
    s.link.write = lambda: not s.link.out.clear()
    s.link.read = lambda wait: out.append(wait)
    for _ in range(rows):
        s.outbox.step((s.outbox.produced, 1, 2, 0, 0, 0))
    s.told = s._changing()
    s.exchange(10000)
    return out[0]


def test_once_all_steps_are_sent_the_end_of_one_wakes_the_sender():
    s = Viewed()
    tally = s.outbox.tally
    assert waits(s) == 10000 and tally.armed
    waits(s, rows=1)
    assert not tally.armed and not tally.rows
    s.outbox.take = lambda: ""  # one ends between the look and the sleep
    assert waits(s, rows=1) == 0 and not tally.armed
    s.welcome = False
    assert waits(s) == 10000 and not tally.armed


def test_the_more_a_frame_of_steps_takes_the_longer_the_sender_rests(monkeypatch):
    s = Viewed()
    clock = iter([0.0, 0.0003, 2.0])
    monkeypatch.setattr("agent.send.time.thread_time", lambda: next(clock))
    assert [waits(s, rows=1) for _ in range(3)] == [SOONEST, round(0.3 * STEPS_SHARE), LATEST]


def test_an_order_is_accepted_with_its_number():
    s = Viewed()
    s.hear(wire.ORDER, order(id=7, do="describe", how="ops", steps=2, saves=True))
    assert list(s.wishes.want) == [("ops", 2, True, "", [7])]
    s._fill()
    assert (
        wire.ANSWER,
        {"order": 7, "state": "accepted", "reason": "", "text": "", "says": {}},
    ) in s.frames()


def test_a_sentence_is_sent_by_its_code_and_readable_without_it(monkeypatch):
    inner = Says("plan_version", "2")
    outer = Says("plan_not_begun", inner)
    assert (inner, outer) == ("plan version: 2", "plan not begun: plan version: 2")
    assert told(outer) == {
        "code": "plan_not_begun",
        "values": [{"code": "plan_version", "values": ["2"]}],
    }
    assert told("") == told("ValueError: the program's own") == {}
    monkeypatch.setitem(SENTENCES, "plan_version", "the plan is of version %s")
    assert Says("plan_version", "2") == "the plan is of version 2"


def test_what_is_said_has_its_code_in_every_frame():
    box = Outbox(Tally(None))
    box.say(Says("compiled"), "ops")
    box.state(Says("offloads"), "unplanned")
    box.lose("windows", 1, Says("viewer_slow"))
    box.answer([1, 0, 2], wire.REFUSED, "superseded", Says("superseded"))
    said = [payload["says"]["code"] for _, payload in box.notices] + [a["says"]["code"] for a in box.answers]
    assert said == ["compiled", "offloads", "viewer_slow", "superseded", "superseded"]
    assert [a["order"] for a in box.answers] == [1, 2]
    assert (
        hello(SimpleNamespace(__version__="2"), None, "ops", False, 0, True)["says"]["code"] == "first_step"
    )


def test_an_order_without_a_plan_ends_only_the_plan_that_it_names():
    s = Viewed()
    for number in (3, 4):
        s.hear(wire.ORDER, order(id=number, do="carry", number=number, plan={"version": 1}))
    s.hear(wire.ORDER, order(id=5, do="carry", number=3))  # the other has already replaced it
    assert [p["id"] for p in s.wishes.plans] == [4]
    s.hear(wire.ORDER, order(id=6, do="carry", number=4))
    assert [p["plan"] for p in s.wishes.plans] == [None]


def test_an_order_that_nobody_knows_is_refused():
    s = Viewed()
    s.hear(wire.ORDER, order(id=8, do="dance"))
    answers = [(a["order"], a["state"], a["reason"]) for a in s.outbox.answers]
    assert answers == [(8, "refused", "unknown_order")]


@pytest.mark.parametrize(
    "payload", [b"[]", b"{", b"\xff", b'{"do":"every","steps":"x"}', b'{"do":"carry","plan":1}']
)
def test_who_talks_nonsense_is_hung_up_on(payload):
    s = Viewed()
    s.hear(wire.ORDER, payload)
    assert s.hung_up()


@pytest.mark.parametrize("size", [0, wire.MAX_FRAME + 1])
def test_a_frame_of_no_or_of_too_many_bytes_is_no_frame(size):
    s = Viewed()
    s.link.unread += struct.pack("<IB", size, wire.ORDER)
    s._hear()
    assert s.hung_up()


def test_half_a_frame_waits_for_the_rest():
    s = Viewed()
    whole = struct.pack("<IB", 3, wire.DETACH) + b"{}"
    s.link.unread += whole[:-1]
    s._hear()
    assert not s.wishes.leaving
    s.link.unread += whole[-1:]
    s._hear()
    assert s.wishes.leaving


@pytest.mark.parametrize(("stays", "left"), [(True, 3), (False, 0)])
def test_a_viewer_that_goes_takes_its_wishes_with_it_and_a_plan_that_is_not_to_stay(stays, left):
    s = Viewed()
    s.hear(wire.ORDER, order(id=1, do="describe", steps=2))
    s.hear(wire.ORDER, order(id=2, do="every", steps=5))
    s.hear(wire.ORDER, order(id=3, do="carry", number=1, plan={"version": 1}, stays=stays))
    s.hear(wire.WELCOME, order(version=wire.VERSION + 1))
    assert s.hung_up()
    assert not s.wishes.want
    assert s.wishes.every == 0
    assert [p["order"] for p in s.wishes.plans] == [left]
    assert s.wishes.abandoned != stays


def test_what_has_changed_is_said_in_another_hello(monkeypatch):
    said = []
    monkeypatch.setattr("agent.send.hello", lambda torch, device, *facts: said.append(facts) or {})
    s = Viewed()
    s._fill()
    assert said == []
    s.hear(wire.ORDER, order(id=1, do="depth", how="history"))
    s._fill()
    s._fill()
    assert said == [("history", False, -1, True)]
    s.outbox.step((0,))
    s._fill()
    assert said[1:] == [("history", False, -1, False)]


def test_every_so_many_steps_are_looked_for_twice_as_often():
    s = Viewed()
    assert s._patience() > 1 << 20
    s.wishes.every, s.windows.lasted = 10, 100_000_000
    assert s._patience() == 500
    s.windows.lasted = 1
    assert s._patience() == SOON


def test_steps_that_fell_out_are_counted():
    s = Viewed()
    s.outbox.tally.produced = 5
    s.outbox.tally.rows.append((4,))
    s.told = s._changing()
    s._fill()
    kinds = dict(s.frames())
    assert kinds[wire.STEPS] == [[4]]
    assert kinds[wire.LOST]["n"] == 4


def test_a_viewer_that_does_not_read_is_sent_no_more_steps():
    s = Viewed()
    s.link.out += b" " * (MAX_UNSENT // 2)
    s.outbox.step((1,))
    s.told = s._changing()
    s._fill()
    assert len(s.outbox.tally.rows) == 1


def test_each_step_is_taken_or_counted_as_lost_but_once():
    box = Outbox(Tally(None))
    for k in range(MAX_STEPS + 7):
        box.step((k,))
    assert box.lost() == 7
    assert [row[0] for row in json.loads(box.take())] == list(range(7, 1007))
    assert box.lost() == 0
    box.viewer_left()  # what was taken may not have been written
    assert box.lost() == 1000
    box.take()
    box.arrived()
    box.viewer_left()
    assert box.lost() == 0
    assert box.taken + len(box.tally.rows) == box.produced == MAX_STEPS + 7
