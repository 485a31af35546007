"""Finds the functions that the pool replaces in torch's allocators.

All that we have of an allocator is its table of virtual functions. Which slot holds which function differs
between versions, so we do not assume it: each slot of the table in this process is looked up among the
symbols of its library, and the functions to replace must have the exact names, arguments included, that
pool.c is written for. They must also be where SLOTS has them, by device and version; -1 stands for a function
that is missing or left alone. SLOTS lists the supported versions, as read from each release of torch for
Linux (pool/testdata/slots.py).
"""

from __future__ import annotations

import ctypes
import os
import struct
from typing import Callable

from .says import Refused, Says

HOOKED = ("allocate", "raw_deleter", "recordStream", "getBaseAllocation", "shareIpcHandle", "begin", "end")
SLOTS = {
    "cpu": dict(
        [((2, 2), (2, 3, -1, -1, -1, -1, -1))] + [((2, n), (2, 4, -1, -1, -1, -1, -1)) for n in range(3, 16)]
    ),
    "cuda": {
        (2, 2): (2, -1, 13, 12, -1, 18, 19),
        (2, 3): (2, -1, 15, 14, -1, 20, 21),
        (2, 4): (2, -1, 15, 14, -1, 20, 21),
        (2, 5): (2, -1, 15, 14, 24, 20, 21),
        (2, 6): (2, -1, 18, 17, 29, 23, 24),
        (2, 7): (2, -1, 18, 17, 29, 23, 24),
        (2, 8): (2, -1, 18, 17, 30, 23, 24),
        (2, 9): (2, -1, 22, 21, 31, 24, 25),
        (2, 10): (2, -1, 24, 23, 34, 26, 27),
        (2, 11): (2, -1, 24, 23, 34, 26, 27),
        (2, 12): (2, -1, 24, 23, 34, 26, 27),
        (2, 13): (2, -1, 24, 23, 36, 26, 27),
        (2, 14): (2, -1, 24, 23, 36, 26, 27),
        (2, 15): (2, -1, 24, 23, 36, 26, 27),
    },
}
CPU, CUDA = "3c1019DefaultCPUAllocatorE", "3c104cuda20CUDACachingAllocator6Native22NativeCachingAllocatorE"
NAMES = {  # the symbol names of HOOKED
    "cpu": (
        ("_ZN3c1019DefaultCPUAllocator8allocateEm", "_ZNK3c1019DefaultCPUAllocator8allocateEm"),
        ("_ZNK3c1019DefaultCPUAllocator11raw_deleterEv",),
        (),
        (),
        (),
        (),
        (),
    ),
    "cuda": tuple(
        tuple("_ZN" + const + CUDA[:-1] + name for const, name in names)
        for names in (
            (("", "8allocateEm"), ("K", "8allocateEm")),
            (),
            (("", "12recordStreamERKNS_7DataPtrENS0_10CUDAStreamE"),),
            (("", "17getBaseAllocationEPvPm"),),
            (("", "14shareIpcHandleEPv"),),
            (
                ("", "19beginAllocateToPoolEaSt4pairIyyESt8functionIFbP11CUstream_stEE"),
                ("", "19beginAllocateToPoolEiSt4pairIyyESt8functionIFbP11CUstream_stEE"),
                ("", "25beginAllocateStreamToPoolEiP11CUstream_stSt4pairIyyE"),
                ("", "25beginAllocateStreamToPoolEaP11CUstream_stSt4pairIyyE"),
            ),
            (
                ("", "17endAllocateToPoolEaSt4pairIyyE"),
                ("", "17endAllocateToPoolEiSt4pairIyyE"),
                ("", "23endAllocateStreamToPoolEiP11CUstream_st"),
                ("", "23endAllocateStreamToPoolEaP11CUstream_st"),
            ),
        )
    ),
}
ABSENT = ("shareIpcHandle",)  # missing in torch before 2.5


class Symbols:
    """The functions and tables of a library in this process, by address. Reads 64-bit little-endian ELF, the
    format of torch's wheels for Linux."""

    def __init__(self, name: str) -> None:
        self.path, self.base = "", 0
        with open("/proc/self/maps") as maps:
            for line in maps:
                fields = line.split(None, 5)
                if len(fields) == 6 and os.path.basename(fields[5].strip()) == name:
                    self.path = fields[5].strip()
                    self.base = int(fields[0].split("-")[0], 16) - int(fields[2], 16)
                    break
        if not self.path:
            raise Refused(Says("library_missing", name))
        try:
            with open(self.path, "rb") as f:
                self.names = self._read(f.read())
        except (OSError, struct.error, ValueError, IndexError, Refused) as e:
            why = e.why if isinstance(e, Refused) else str(e)
            raise Refused(Says("symbols_unread", self.path, why)) from e

    @staticmethod
    def _read(data: bytes) -> dict[int, list[tuple[str, int]]]:
        if data[:6] != b"\x7fELF\x02\x01":
            raise Refused(Says("not_elf"))
        (at,) = struct.unpack_from("<Q", data, 0x28)
        size, count = struct.unpack_from("<HH", data, 0x3A)
        sections = [struct.unpack_from("<IIQQQQIIQQ", data, at + i * size) for i in range(count)]
        names: dict[int, list[tuple[str, int]]] = {}
        for s in sections:
            if s[1] not in (2, 11):  # SHT_SYMTAB, SHT_DYNSYM
                continue
            texts = sections[s[6]][4]
            for name, info, _, _, value, length in struct.iter_unpack("<IBBHQQ", data[s[4] : s[4] + s[5]]):
                if value and info & 15 in (1, 2):  # STT_OBJECT, STT_FUNC
                    begin = texts + name
                    names.setdefault(value, []).append(
                        (data[begin : data.index(b"\0", begin)].decode("ascii", "replace"), length)
                    )
        return names

    def at(self, address: int) -> list[tuple[str, int]]:
        """The names and sizes of the symbols at the address."""
        return self.names.get(address - self.base, [])


def table(device: str, theirs: Callable[[int], int]) -> tuple[int, int, tuple[int, ...]]:
    """The address of torch's allocator for the device, how many slots its table has, and the slots of HOOKED.
    theirs(address) is the table that the allocator had before ours."""
    symbols = Symbols("libc10.so" if device == "cpu" else "libc10_cuda.so")
    library = ctypes.CDLL(symbols.path)
    if device == "cpu":
        get = library["_ZN3c1012GetAllocatorERKNS_10DeviceTypeE"]
        get.restype, get.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
        address = get(ctypes.byref(ctypes.c_int8(0)))
    else:
        address = ctypes.c_void_p.in_dll(library, "_ZN3c104cuda20CUDACachingAllocator9allocatorE").value
    if not address:
        raise Refused(Says("allocator_missing", device))
    virtual = theirs(address)
    sizes = [
        size
        for name, size in symbols.at(virtual - 16)
        if name == "_ZTVN" + (CPU if device == "cpu" else CUDA)
    ]
    if not sizes:
        raise Refused(Says("allocator_replaced", device))
    count = sizes[0] // 8 - 2
    slots = [-1] * len(HOOKED)
    for k in range(count):
        for name, _ in symbols.at(ctypes.c_void_p.from_address(virtual + 8 * k).value or 0):
            for h, names in enumerate(NAMES[device]):
                if name in names:
                    slots[h] = k
    for h, names in enumerate(NAMES[device]):
        if names and slots[h] < 0 and HOOKED[h] not in ABSENT:
            raise Refused(Says("allocator_unknown", HOOKED[h]))
    return address, count, tuple(slots)
