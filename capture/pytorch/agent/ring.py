"""Keeps the newest steps in memory, where a viewer finds them before they are sent and after a kill.

A step that has ended waits in the process until the sending thread has sent it, and SIGKILL takes what waits.
So the training thread also writes each row into a ring: a file in memory that has no name, of which the
viewer gets a descriptor when the agent connects. Writing takes no lock, waits for nobody and allocates no
page. The viewer reads new rows while the sending thread rests, and what is left if the process goes without a
goodbye. The kernel frees the file with its last descriptor, so nothing of it can be left behind.

A slot holds a row between two copies of its number, which is one more than the step's. The numbers are
written first and last: they differ if the process was killed in between. The slots are used in turn. All
figures are 64-bit integers, which a view of the memory stores at once. docs/wire.md describes the file.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import struct
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .tally import Tally

RING_BYTES = 1 << 18
RING_HEAD = 8  # integers before the first slot
RING_SLOT = 36  # integers of a slot
RING_SLOTS = (RING_BYTES // 8 - RING_HEAD) // RING_SLOT
RING_LAST = RING_HEAD + (RING_SLOTS - 1) * RING_SLOT  # where the last slot begins
RING_SENT = 5  # which integer says how many steps were sent
RING_MAGIC = struct.unpack("q", b"gmt-ring")[0]
RING_VERSION = 1

# numbers of Linux that older Pythons do not name
CLOEXEC, ALLOW_SEALING, NOEXEC_SEAL = 1, 2, 8
ADD_SEALS, GET_SEALS = 1033, 1034
SEALS = 1 | 2 | 4  # no more seals, no other size: nobody can take the pages away under the training
WIPE_ON_FORK = 18


class Ring:
    """The file. Its rows are written by the Tally."""

    def __init__(self, tally: Tally, epoch: int) -> None:
        self.tally, self.epoch = tally, epoch
        self.fd = -1

    def open(self) -> None:
        """Make the file. Where that is not possible, the agent goes on without one."""
        if not sys.platform.startswith("linux"):
            return
        try:
            # A forked child finds zero here: it shares the file, and must not write into its parent's.
            own = mmap.mmap(-1, mmap.PAGESIZE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            own.madvise(WIPE_ON_FORK)
            self.fd = unnamed_file()
            # before it is mapped: a file system without room is an error here, and a signal there
            os.pwrite(self.fd, bytes(RING_BYTES), 0)
            try:
                fcntl.fcntl(self.fd, ADD_SEALS, SEALS)
            except OSError:
                fcntl.fcntl(self.fd, GET_SEALS)  # the viewer takes no file that is not in memory
            memory = mmap.mmap(self.fd, RING_BYTES)
            memory.write(bytes(RING_BYTES))  # maps each page now, not in a step
            view = memoryview(memory).cast("q")
            head = RING_VERSION, RING_SLOTS, 8 * RING_SLOT, self.epoch, self.tally.produced
            for i, figure in enumerate(head, 1):
                view[i] = figure
            view[0] = RING_MAGIC
        except (OSError, ValueError, AttributeError):
            return self.close()
        own[0] = 1
        self.tally.at, self.tally.own = RING_HEAD, own
        self.tally.view = view  # last: from now on rows are written

    def sent(self, steps: int) -> None:
        """A viewer has received this many steps. The next viewer starts after them."""
        view = self.tally.view
        if view is not None and self.fd >= 0:
            view[RING_SENT] = steps

    def close(self) -> None:
        """Close the file. The training thread may be writing: the last reference unmaps the memory."""
        self.tally.view = None
        fd, self.fd = self.fd, -1
        if fd >= 0:
            try:
                os.close(fd)
            except OSError:
                pass


NOT_OWN = b"\0"  # stands in for a ring's own memory: this process may not write


def unnamed_file() -> int:
    """A file in memory without a name. Raises OSError or AttributeError if there can be none."""
    make = getattr(os, "memfd_create", None)  # missing in a Python built for an older C library
    if make is None:
        return os.open("/dev/shm", os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        return int(make("gmemtop", CLOEXEC | ALLOW_SEALING | NOEXEC_SEAL))
    except OSError:  # the kernel is older than 6.3
        return int(make("gmemtop", CLOEXEC | ALLOW_SEALING))
