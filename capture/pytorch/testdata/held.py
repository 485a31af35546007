"""Send while something holds a reference to every object, like a program that walks gc.get_objects().

usage: held.py AGENT.PY
"""
import gc
import sys

import torch

space = {"__name__": "gmemtop_agent"}
with open(sys.argv[1]) as f:
    exec(compile(f.read(), "gmemtop_agent", "exec"), space)


class Socket(object):
    """Takes a little at a time, and keeps a reference to all that it can see meanwhile."""

    def __init__(self):
        self.held, self.got = [], b""

    def send(self, data):
        self.held.append([o for o in gc.get_objects() if isinstance(o, memoryview)] + [data])
        self.got += bytes(data[:50000])
        return min(len(data), 50000)


class Poll(object):
    def modify(self, *args):
        pass

    def poll(self, wait):
        return []


agent = space["Agent"]("/nowhere", False)
link, sender = agent.link, agent.sender
link.sock, link.poll, sender.welcome, sender.told = Socket(), Poll(), True, sender._changing()
want = bytes(range(256)) * 2500
link.out += want
sender.exchange(0)
agent.outbox.say("and more", "state")
sender.exchange(0)
sys.exit(0 if link.sock.got[:len(want)] == want and b"and more" in link.sock.got and not link.out
         else "sent %d bytes, %d are left" % (len(link.sock.got), len(link.out)))
