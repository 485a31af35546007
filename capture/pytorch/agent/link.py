"""The connection to a viewer, and the pipe that wakes the thread that talks to it."""

from __future__ import annotations

import json
import os
import select
import socket
import struct
from typing import Any, Iterator, Mapping

from .says import told
from .wire import BYE, MAX_FRAME, VERSION

PIECE = 1 << 18  # how many bytes to write at once


class Bell:
    """A pipe that wakes the sending thread."""

    def __init__(self) -> None:
        self.ends: tuple[int, ...] = ()

    def open(self) -> None:
        self.ends = os.pipe()
        for end in self.ends:
            os.set_blocking(end, False)

    def ring(self) -> None:
        """Make the thread look at once."""
        for end in self.ends[1:]:
            try:
                os.write(end, b"!")
            except OSError:
                pass  # it is ringing already

    def hush(self) -> None:
        os.read(self.ends[0], 4096)

    def sleep(self, milliseconds: int) -> None:
        """Sleep until it rings, at most this long."""
        poll = select.poll()
        poll.register(self.ends[0], select.POLLIN)
        if poll.poll(milliseconds):
            self.hush()

    def close(self) -> None:
        ends, self.ends = self.ends, ()
        for end in ends:
            try:
                os.close(end)
            except OSError:
                pass


class Link:
    """Frames to and from one viewer at a time. It belongs to the sending thread."""

    def __init__(self, path: str, bell: Bell) -> None:
        self.path, self.bell = path, bell
        self.sock: Any = None  # the viewer's, None while there is none
        self.poll: Any = None
        self.out = bytearray()
        self.unread = bytearray()
        self.written = 0
        self.gift = -1  # a descriptor that goes with the next bytes, -1 for none

    def connect(self) -> bool:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            sock.settimeout(1.0)
            sock.connect(self.path)
            sock.setblocking(False)
        except OSError:
            sock.close()
            return False
        self.sock, self.out, self.unread = sock, bytearray(), bytearray()
        self.poll = select.poll()
        self.poll.register(sock, select.POLLIN)
        self.poll.register(self.bell.ends[0], select.POLLIN)
        return True

    def close(self) -> None:
        sock, self.sock = self.sock, None
        if sock is not None:
            sock.close()
        self.out = bytearray()

    def frame(self, kind: int, payload: bytes | bytearray | Mapping[str, Any] | list[Any]) -> None:
        if not isinstance(payload, (bytes, bytearray)):
            payload = json.dumps(payload, separators=(",", ":")).encode("utf-8", "replace")
        self.out += struct.pack("<IB", len(payload) + 1, kind) + payload

    def write(self) -> bool:
        """Write what can be written. Returns whether that was all. Raises OSError if the viewer has gone."""
        try:
            while self.out:
                # A copy: if somebody who lists all objects (gc.get_objects) held a view, the buffer could not
                # be cut.
                n = self._send(self.out[:PIECE])
                del self.out[:n]
                self.written += n
            return True
        except (BlockingIOError, InterruptedError):
            return False  # the viewer reads more slowly than we write

    def _send(self, piece: bytearray) -> int:
        gift = self.gift
        if gift < 0:
            return int(self.sock.send(piece))
        n = self.sock.sendmsg([piece], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack("i", gift))])
        self.gift = -1
        return int(n)

    def read(self, wait: int) -> bool:
        """Wait up to `wait` milliseconds for bytes, for room to write or for the bell. Returns whether bytes
        have come. Raises OSError if the viewer has gone."""
        came = False
        self.poll.modify(self.sock, select.POLLIN | (select.POLLOUT if self.out else 0))
        for fd, event in self.poll.poll(wait):
            if fd == self.bell.ends[0]:
                self.bell.hush()
            elif event & ~select.POLLOUT:
                try:
                    got = self.sock.recv(1 << 16)
                except (BlockingIOError, InterruptedError):
                    continue
                if not got:
                    raise ConnectionError("the viewer has gone")
                self.unread += got
                came = True
        return came

    def frames(self) -> Iterator[tuple[int, bytes]]:
        """The frames that have arrived completely, as kind and payload. Raises ValueError for anything else
        than a frame."""
        while len(self.unread) >= 5:
            size, kind = struct.unpack_from("<IB", self.unread)
            if size < 1 or size > MAX_FRAME:
                raise ValueError("a frame of %d bytes" % size)
            if len(self.unread) < 4 + size:
                return
            payload = bytes(self.unread[5 : 4 + size])
            del self.unread[: 4 + size]
            yield kind, payload


def refuse(path: str, why: str, code: str = "") -> None:
    """Tell the viewer at a socket why no agent can start here."""
    payload = json.dumps(
        {
            "version": VERSION,
            "pid": os.getpid(),
            "reason": "refused",
            "detail": why,
            "says": told(why),
            "refusal": code,
        }
    ).encode()
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.settimeout(0.2)
        sock.connect(path)
        sock.sendall(struct.pack("<IB", len(payload) + 1, BYE) + payload)
    except OSError:
        pass
    finally:
        sock.close()
