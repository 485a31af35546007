"""Feed the agent input as if from a hostile viewer. Needs no torch.

usage: hears.py AGENT.py

Each line of the input is a stream of bytes in hexadecimal. The output answers it with a line of JSON: whether
the agent hung up, whether it leaves, and what it sends, in hexadecimal.
"""
import json
import sys
import types

with open(sys.argv[1]) as f:
    space = {"__name__": "gmemtop_agent"}
    exec(compile(f.read(), "gmemtop_agent", "exec"), space)


class Closed(object):
    def close(self):
        pass


def hear(stream, size):
    """Return a sender that received a stream, in pieces of so many bytes, until it hung up."""
    link, tally = space["Link"]("/nowhere", None), space["Tally"](None)
    windows = types.SimpleNamespace(next_ready=lambda: None, ready=[], lasted=0, busy=lambda: False)
    manager = types.SimpleNamespace(offloads=False)
    s = space["Sender"](None, 0, link, space["Outbox"](tally), space["Wishes"](tally), windows, manager, None)
    link.sock = Closed()
    for at in range(0, len(stream), size):
        if link.sock is not None:
            link.unread += stream[at : at + size]
            s._hear()
    return s


def state(s):
    wishes, outbox = s.wishes, s.outbox
    asked = [wishes.every, wishes.how, list(wishes.want), list(wishes.later), list(wishes.plans)]
    said = [list(outbox.answers), list(outbox.notices)]
    return [s.link.sock is None, wishes.leaving, s.welcome, asked, said]


for line in sys.stdin:
    stream = bytes.fromhex(line.strip())
    s = hear(stream, max(len(stream), 1))
    assert state(s) == state(hear(stream, 7)), "how a stream is cut makes a difference"
    wishes = s.wishes
    assert wishes.every >= 0 and wishes.how in ("ops", "history", "profile"), (wishes.every, wishes.how)
    assert len(wishes.plans) <= 1, "a newer order takes an older one's place"
    assert all(-(1 << 63) <= o["id"] < 1 << 63 for o in wishes.plans), "steps name a plan by its number"
    assert all(0 < first < 1 << 63 for first, _ in wishes.later), "a window begins at a step to come"
    for how, steps, saves, library, orders in [*wishes.want, *(wish for _, wish in wishes.later)]:
        assert how in ("ops", "history", "profile", "events") and 1 <= steps <= 1000, (how, steps)
        assert isinstance(saves, bool) and isinstance(library, str), (saves, library)
    hung_up = s.link.sock is None
    s.welcome, s.told = True, s._changing()  # a proper greeting would need torch
    s._fill()
    sent = bytes(s.link.out).hex()
    print(json.dumps({"hung_up": hung_up, "leaving": wishes.leaving, "sent": sent}), flush=True)
