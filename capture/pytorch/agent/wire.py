"""The frames between the agent and a viewer. docs/wire.md describes them."""

from __future__ import annotations

VERSION = 2
HELLO, STEPS, WINDOW, DATA, WHOLE, NOTICE, LOST, BYE = range(1, 9)  # to the viewer; DATA is zlib
ANSWER = 10  # to the viewer: how far an order has come
WELCOME, DETACH, ORDER = 64, 68, 70  # from the viewer
# What an answer says: the states of an order, and why it was refused or why a plan ended. capture/order.go
# explains them.
ACCEPTED, REFUSED, DONE, ENDED = "accepted", "refused", "done", "ended"
MAX_FRAME = 64 << 20
