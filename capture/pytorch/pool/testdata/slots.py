"""Read from torch wheels for Linux where its allocators' tables have the functions that the pool replaces,
and compare with SLOTS.

usage: slots.py SLOTS.py WHEEL...    WHEEL is a file, or a URL that serves ranges of bytes

Runs nothing from torch: the tables are in the libraries, as relocations. Prints a line for each wheel and
device; the exit status is 1 if one differs from SLOTS.
"""
import importlib.util
import io
import os
import re
import struct
import sys
import urllib.request
import zipfile

spec = importlib.util.spec_from_file_location("slots", sys.argv[1])
torchs = importlib.util.module_from_spec(spec)
spec.loader.exec_module(torchs)


class Remote(io.RawIOBase):
    """A remote file, of which only the bytes that are read are fetched."""

    def __init__(self, address):
        self.address, self.at = address, 0
        self.size = int(self.fetch(0, 1).headers["Content-Range"].split("/")[1])

    def fetch(self, begin, n):
        return urllib.request.urlopen(urllib.request.Request(self.address,
                headers={"Range": "bytes=%d-%d" % (begin, begin + n - 1)}), timeout=120)

    def seekable(self):
        return True

    def readable(self):
        return True

    def tell(self):
        return self.at

    def seek(self, offset, whence=io.SEEK_SET):
        self.at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self.at, io.SEEK_END: self.size}[whence]
        return self.at

    def readinto(self, buffer):
        n = min(len(buffer), self.size - self.at)
        if n <= 0:
            return 0
        got = self.fetch(self.at, n).read()
        buffer[:len(got)] = got
        self.at += len(got)
        return len(got)


def slots(data, device):
    """Where the functions in HOOKED are in the table of a library's allocator."""
    names, class_name = torchs.Symbols._read(data), "_ZTVN" + (torchs.CPU if device == "cpu" else torchs.CUDA)
    table, size = [(at, size) for at, found in names.items() for name, size in found if name == class_name][0]
    sections_at, = struct.unpack_from("<Q", data, 0x28)
    each, count = struct.unpack_from("<HH", data, 0x3a)
    sections = [struct.unpack_from("<IIQQQQIIQQ", data, sections_at + i * each) for i in range(count)]
    found = [-1] * len(torchs.HOOKED)
    for s in sections:
        if s[1] != 4:  # SHT_RELA
            continue
        symbols = sections[s[6]]
        for at, info, addend in struct.iter_unpack("<QQq", data[s[4]:s[4] + s[5]]):
            if not table + 16 <= at < table + size:
                continue
            if info & 0xffffffff == 8:  # R_X86_64_RELATIVE
                called = {name for name, _ in names.get(addend, [])}
            else:
                begin = sections[symbols[6]][4] + struct.unpack_from("<I", data,
                        symbols[4] + (info >> 32) * 24)[0]
                called = {data[begin:data.index(b"\0", begin)].decode()}
            for h, known in enumerate(torchs.NAMES[device]):
                if called & set(known):
                    found[h] = (at - table - 16) // 8
    return tuple(found)


wrong = False
for wheel in sys.argv[2:]:
    version = re.match(r"torch-(\d+)\.(\d+)[^-]*", os.path.basename(wheel))
    with zipfile.ZipFile(wheel if os.path.exists(wheel) else io.BufferedReader(Remote(wheel), 1 << 20)) as z:
        for device, library in (("cpu", "libc10.so"), ("cuda", "libc10_cuda.so")):
            found = slots(z.read("torch/lib/" + library), device)
            same = found == torchs.SLOTS[device].get((int(version.group(1)), int(version.group(2))))
            wrong = wrong or not same
            print(version.group(0), device, found,
                  "as it is in SLOTS" if same else "NOT AS IT IS IN SLOTS", flush=True)
sys.exit(wrong)
