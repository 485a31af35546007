"""Frames to the viewer and orders from it, without torch and without a socket."""

import json
import struct

import pytest

from agent import wire
from agent.send import MAX_UNSENT, Sender


class Viewed(Sender):
    """A Sender whose viewer has been welcomed."""

    def __init__(self):
        Sender.__init__(self, "/nowhere")
        self.welcome, self.hung_up, self.index = True, False, 1
        self.hello = {}
        self.orders = []

    def _lost_viewer(self):
        self.hung_up = True

    def hear(self, kind, payload):
        self.unread += struct.pack("<IB", len(payload) + 1, kind) + payload
        self._hear()

    def frames(self):
        """What waits to be written, as kinds and payloads."""
        out = []
        while self.out:
            size, kind = struct.unpack_from("<IB", self.out)
            out.append((kind, json.loads(bytes(self.out[5 : 4 + size]))))
            del self.out[: 4 + size]
        return out


def order(**told):
    return json.dumps(told).encode()


def test_a_frame_is_its_length_its_kind_and_its_payload():
    s = Viewed()
    s._frame(wire.NOTICE, {"text": "t"})
    assert bytes(s.out) == struct.pack("<IB", 13, wire.NOTICE) + b'{"text":"t"}'


def test_an_order_is_accepted_with_its_number():
    s = Viewed()
    s.hear(wire.ORDER, order(id=7, do="describe", how="ops", steps=2, saves=True))
    assert list(s.want) == [("ops", 2, True, "", [7])]
    s._fill()
    assert (wire.ANSWER, {"order": 7, "state": "accepted", "reason": "", "text": ""}) in s.frames()


def test_an_order_that_nobody_knows_is_refused():
    s = Viewed()
    s.hear(wire.ORDER, order(id=8, do="dance"))
    assert [(a["order"], a["state"], a["reason"]) for a in s.answers] == [(8, "refused", "unknown_order")]


@pytest.mark.parametrize(
    "payload", [b"[]", b"{", b"\xff", b'{"do":"every","steps":"x"}', b'{"do":"carry","plan":1}']
)
def test_who_talks_nonsense_is_hung_up_on(payload):
    s = Viewed()
    s.hear(wire.ORDER, payload)
    assert s.hung_up


@pytest.mark.parametrize("size", [0, wire.MAX_FRAME + 1])
def test_a_frame_of_no_or_of_too_many_bytes_is_no_frame(size):
    s = Viewed()
    s.unread += struct.pack("<IB", size, wire.ORDER)
    s._hear()
    assert s.hung_up


def test_half_a_frame_waits_for_the_rest():
    s = Viewed()
    whole = struct.pack("<IB", 3, wire.DETACH) + b"{}"
    s.unread += whole[:-1]
    s._hear()
    assert not s.leaving
    s.unread += whole[-1:]
    s._hear()
    assert s.leaving


def test_steps_that_fell_out_are_counted():
    s = Viewed()
    s.produced = 5
    s.steps.append((4,))
    s._fill()
    kinds = dict(s.frames())
    assert kinds[wire.STEPS] == [[4]]
    assert kinds[wire.LOST]["n"] == 4


def test_a_viewer_that_does_not_read_is_sent_no_more_steps():
    s = Viewed()
    s.out += b" " * (MAX_UNSENT // 2)
    s.steps.append((1,))
    s._fill()
    assert len(s.steps) == 1
