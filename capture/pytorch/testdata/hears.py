"""Hear what a viewer sends as if an enemy had written it. It needs no torch.

usage: hears.py AGENT.py

A line of the input is a stream of bytes in hexadecimal. The line of the output that answers it is JSON:
whether the agent hung up, whether it leaves, and what it sends, in hexadecimal.
"""
import json
import sys

with open(sys.argv[1]) as f:
    space = {"__name__": "gmemtop_agent"}
    exec(compile(f.read(), "gmemtop_agent", "exec"), space)


class Closed(object):
    def close(self):
        pass


def hear(stream, size):
    """Return an agent that was told a stream, in pieces of so many bytes, until it hung up."""
    s = space["Sender"]("/nowhere")
    s.sock, s.index, s.hello, s.orders = Closed(), 1, {}, space["collections"].deque()
    for at in range(0, len(stream), size):
        if s.sock is not None:
            s.unread += stream[at : at + size]
            s._hear()
    return s


def state(s):
    asked = [s.every, s.how, list(s.want), list(s.orders)]
    return [s.sock is None, s.leaving, s.welcome, asked, list(s.answers), list(s.notices)]


for line in sys.stdin:
    stream = bytes.fromhex(line.strip())
    s = hear(stream, max(len(stream), 1))
    assert state(s) == state(hear(stream, 7)), "how a stream is cut makes a difference"
    assert s.every >= 0 and s.how in ("ops", "history", "profile"), (s.every, s.how)
    assert len(s.orders) <= 1, "a newer order takes an older one's place"
    assert all(-(1 << 63) <= o["id"] < 1 << 63 for o in s.orders), "steps name a plan by its number"
    for how, steps, saves, library, orders in s.want:
        assert how in ("ops", "history", "profile", "events") and 1 <= steps <= 1000, (how, steps)
        assert isinstance(saves, bool) and isinstance(library, str), (saves, library)
    hung_up = s.sock is None
    s.welcome = s.told_who = True  # who it is takes a torch to say
    s._fill()
    print(json.dumps({"hung_up": hung_up, "leaving": s.leaving, "sent": bytes(s.out).hex()}), flush=True)
