"""Check that an order that arrives while the training thread takes up the one before is not lost. Needs no
torch.

usage: orders.py AGENT.py
"""
import json
import random
import struct
import sys

with open(sys.argv[1]) as f:
    space = {"__name__": "gmemtop_agent"}
    exec(compile(f.read(), "gmemtop_agent", "exec"), space)


class torch(object):
    class cuda(object):
        is_initialized = staticmethod(lambda: False)


class Socket(object):
    def close(self):
        pass


class Totals(object):
    pools = addresses = None


class Manager(space["Manager"]):
    """Receives a second order, as the sending thread may, when it reaches a certain place with the first."""

    def __init__(self, place):
        tally, optimizers = space["Tally"](None), space["Optimizers"]()
        outbox, wishes = space["Outbox"](tally), space["Wishes"](tally)
        space["Manager"].__init__(self, torch, outbox, wishes, optimizers)
        self.link = space["Link"]("", space["Bell"]())
        windows = space["Windows"](torch, None, outbox, wishes, optimizers, self, Totals, None)
        self.sender = space["Sender"](torch, 0, self.link, outbox, wishes, windows, self, None)
        self.place, self.carried = place, []

    def hear(self, number):
        payload = json.dumps({"id": 100 + number, "do": "carry", "number": number,
                              "plan": {"version": 1}}).encode()
        self.link.unread += struct.pack("<IB", len(payload) + 1, space["ORDER"]) + payload
        self.sender._hear()

    def come_to(self, place):
        if place == self.place:
            self.place = ""
            self.hear(2)

    def off(self):
        self.come_to("off")

    def _refusal(self, plan):
        self.come_to("refusal")
        return ""

    def _on(self, number, plan):
        self.come_to("on")
        self.carried.append(number)
        return ""

    def _compiled(self):
        return False


class Broken(object):
    why, differs = "it does not fit", False


for place in ("off", "refusal", "on"):
    for carrier in (None, Broken()):  # a broken one is taken off before an order is taken up
        m = Manager(place)
        m.was, m.carrier = 1, carrier
        m.hear(1)
        for _ in range(2):
            m.manage()
            m.carrier = None
        assert m.carried[-1] == 2 and not m.wishes.plans, "the order that came with %s is lost: %s" % (
                place, m.carried)
        states = [(a["order"], a["state"]) for a in m.outbox.answers]
        # it had not begun
        first = ["accepted", "refused"] if place == "off" and carrier else ["accepted", "done", "ended"]
        assert [s for n, s in states if n == 101] == first, "the first order is answered by %s" % states
        assert [s for n, s in states if n == 102] == ["accepted",
                "done"], "the second order is answered by %s" % states

# Of two orders that arrive before a step ends, the newer one counts.
m = Manager("")
m.was, m.carrier = 0, None
m.hear(1)
m.hear(2)
m.manage()
assert m.carried == [2], m.carried
told = [(a["order"], a["state"], a["reason"]) for a in m.outbox.answers]
assert told == [(101, "accepted", ""), (102, "accepted", ""), (101, "refused", "superseded"),
                (102, "done", "")], told

# A plan that makes no sense is refused, and the agent stays.
m = Manager("")
m.was, m.carrier = 0, None
m._refusal = lambda plan: plan["slab"] * 2 > 0
m.hear(1)
m.manage()
assert [(a["state"], a["reason"]) for a in m.outbox.answers] == [("accepted", ""),
        ("refused", "not_begun")], m.outbox.answers

# Nothing that comes from the socket raises: it is an order, or the agent hangs up.
draw = random.Random(1)
whole = [json.dumps(o).encode() for o in (
    {"id": 3, "do": "describe", "steps": 2, "how": "ops", "saves": True,
     "library": "/x"}, {"do": "every", "steps": 5},
    {"id": 4, "do": "carry", "number": 7, "plan": {"version": 1, "values": []}}, {"id": 5,
            "do": "keep"}, {"version": 2}, {})]
whole += [b"[]", b"1", b'"x"', b"null", b'{"id": 1e999}', b'{"id": "9", "do": [], "steps": {}}',
          b"[" * 100000, b"\xff",
          b'{"do": "carry", "plan": [1]}']
hung_up = 0
for _ in range(5000):
    payload = bytearray(draw.choice(whole))
    for _ in range(draw.randrange(3) if len(payload) < 1000 else 0):
        if payload:
            payload[draw.randrange(len(payload))] = draw.randrange(256)
    m = Manager("")
    m.link.sock = Socket()
    m.link.unread += struct.pack("<IB", len(payload) + 1, draw.choice((64, 68, 70, 99))) + payload
    m.sender._hear()
    hung_up += m.link.sock is None
    assert not m.link.unread
assert 500 < hung_up < 4500, hung_up

# Anything that is not an order is refused, and a describe order is answered as soon as it arrives.
m = Manager("")
for n, do in enumerate(("describe", "every", "depth", "dance", None)):
    m.sender._order({"id": n + 1, "do": do, "how": "history"})
told = [(a["order"], a["state"], a["reason"]) for a in m.outbox.answers]
assert told == [(1, "accepted", ""), (2, "done", ""), (3, "done", ""), (4, "refused", "unknown_order"),
                (5, "refused", "unknown_order")], told
