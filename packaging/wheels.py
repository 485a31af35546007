"""Writes wheels of gmemtop from the binaries of `make dist`: the program, and the Python package beside it.

    python3 packaging/wheels.py --version v1.2.0 --binaries dist --output dist

A wheel is a zip file with three files of metadata (the PyPA's "Binary distribution format"). No build backend
takes a program that another compiler made for another machine, so this writes them: with sorted names, one
time stamp and fixed permissions, so that the same input gives the same bytes. It needs only Python 3.8.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import os
import re
import sys
import time
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
# The platforms that can run the binary of each target. A static binary needs no C library of any version,
# neither glibc nor musl: these are the oldest that pip looks for. Go 1.26 needs macOS 12.
PLATFORMS = {
    "linux-amd64": ("manylinux2014_x86_64", "manylinux_2_17_x86_64", "musllinux_1_1_x86_64"),
    "linux-arm64": ("manylinux2014_aarch64", "manylinux_2_17_aarch64", "musllinux_1_1_aarch64"),
    "darwin-amd64": ("macosx_12_0_x86_64",),
    "darwin-arm64": ("macosx_12_0_arm64",),
}
SUMMARY = "Shows where GPU memory goes during training"
METADATA = """Metadata-Version: 2.1
Name: gmemtop
Version: {version}
Summary: {summary}
Requires-Python: >=3.8
Classifier: Environment :: Console
Classifier: Framework :: IPython
Classifier: Framework :: Pytest
Classifier: Operating System :: MacOS
Classifier: Operating System :: POSIX :: Linux
Classifier: Topic :: Scientific/Engineering :: Artificial Intelligence
Classifier: Typing :: Typed
Description-Content-Type: text/markdown

{description}"""
WHEEL = "Wheel-Version: 1.0\nGenerator: gmemtop packaging/wheels.py\nRoot-Is-Purelib: false\n"
ENTRY_POINTS = "[pytest11]\ngmemtop = gmemtop.pytest_plugin\n"


class Unfit(Exception):
    """No wheel can be made from this."""


def version_of(described: str) -> str:
    """The version of the wheel for what `git describe --tags --always --dirty` says: v1.2.0 is 1.2.0,
    v1.2.0-3-gabc1234 is 1.2.0.post3+gabc1234, abc1234 (there is no tag) is 0.0.0+gabc1234."""
    text, dirty = re.subn(r"-dirty$", "", described)
    tag = re.fullmatch(
        r"v?(?P<numbers>\d+(?:\.\d+)*)"
        r"(?:-?(?P<kind>a|b|rc|alpha|beta)\.?(?P<n>\d+))?"
        r"(?:-(?P<since>\d+)-(?P<hash>g[0-9a-f]+))?",
        text,
    )
    local = []
    if tag is not None:
        version = tag["numbers"]
        if tag["kind"]:
            version += {"alpha": "a", "beta": "b"}.get(tag["kind"], tag["kind"]) + str(int(tag["n"]))
        if tag["since"]:
            version, local = version + ".post" + tag["since"], [tag["hash"]]
    elif re.fullmatch(r"[0-9a-f]{7,40}", text):
        version, local = "0.0.0", ["g" + text]
    else:
        raise Unfit("the version %r is neither a tag such as v1.2.0 nor what git describe says" % described)
    if dirty:
        local.append("dirty")
    return version + ("+" + ".".join(local) if local else "")


def check_binary(target: str, program: bytes) -> None:
    """Refuse a binary that does not match the tags: one for another machine, or one that needs a C library of
    Linux."""
    system, machine = target.split("-")
    if system == "linux":
        number = int.from_bytes(program[18:20], "little")
        if program[:5] != b"\x7fELF\x02" or number != {"amd64": 62, "arm64": 183}[machine]:
            raise Unfit("the binary for %s was built for another machine" % target)
        start, entry_size, entries = (
            int.from_bytes(program[at : at + n], "little") for at, n in ((32, 8), (54, 2), (56, 2))
        )
        kinds = [
            int.from_bytes(program[start + i * entry_size :][:4], "little") for i in range(min(entries, 1024))
        ]
        if 3 in kinds:  # PT_INTERP: the dynamic linker, which loads a C library
            raise Unfit("the binary for %s is not static: build it with make dist, without cgo" % target)
    else:
        number = int.from_bytes(program[4:8], "little")
        if program[:4] != b"\xcf\xfa\xed\xfe" or number != {"amd64": 0x1000007, "arm64": 0x100000C}[machine]:
            raise Unfit("the binary for %s was built for another machine" % target)


def write_wheel(
    folder: Path, version: str, target: str, program: bytes, description: str, stamp: int
) -> Path:
    """Write the wheel for a target, with one time for all files, in seconds since 1970."""
    check_binary(target, program)
    platforms = PLATFORMS[target]
    info, data = "gmemtop-%s.dist-info/" % version, "gmemtop-%s.data/" % version
    files = {}
    for path in sorted((HERE / "python" / "gmemtop").iterdir()):
        if path.suffix == ".py" or path.name == "py.typed":
            files["gmemtop/" + path.name] = path.read_bytes()
    files[data + "scripts/gmemtop"] = program
    metadata = METADATA.format(version=version, summary=SUMMARY, description=description)
    files[info + "METADATA"] = metadata.encode()
    files[info + "WHEEL"] = (WHEEL + "".join("Tag: py3-none-%s\n" % p for p in platforms)).encode()
    files[info + "entry_points.txt"] = ENTRY_POINTS.encode()
    rows = ["%s,sha256=%s,%d\n" % (name, digest(text), len(text)) for name, text in sorted(files.items())]
    # The metadata comes last: readers look for it at the end of the file.
    files = dict(sorted(files.items(), key=lambda f: (f[0].startswith(info), f[0])))
    files[info + "RECORD"] = "".join([*rows, info + "RECORD,,\n"]).encode()
    out = folder / ("gmemtop-%s-py3-none-%s.whl" % (version, ".".join(platforms)))
    part = out.with_name(out.name + ".part")
    with zipfile.ZipFile(part, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as z:
        for name, content in files.items():
            entry = zipfile.ZipInfo(name, time.gmtime(max(stamp, 315532800))[:6])  # zip begins in 1980
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.create_system = 3  # Unix: permissions count
            entry.external_attr = (0o100755 if name.startswith(data) else 0o100644) << 16
            z.writestr(entry, content)
    os.replace(part, out)
    return out


def digest(content: bytes) -> str:
    """The hash of a file in the format of RECORD."""
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description="Write wheels from the binaries of make dist.")
    parser.add_argument("--version", required=True, help="as git describe says it")
    parser.add_argument(
        "--binaries", type=Path, required=True, help="the folder with gmemtop-VERSION-SYSTEM-MACHINE"
    )
    parser.add_argument("--output", type=Path, required=True, help="the folder to write the wheels to")
    options = parser.parse_args(arguments)
    stamp = int(os.environ.get("SOURCE_DATE_EPOCH", "315532800"))
    description = (HERE / "python" / "README.md").read_text(encoding="utf-8")
    try:
        version = version_of(options.version)
        options.output.mkdir(parents=True, exist_ok=True)
        for target in PLATFORMS:
            program = (options.binaries / ("gmemtop-%s-%s" % (options.version, target))).read_bytes()
            print(write_wheel(options.output, version, target, program, description, stamp))
    except (Unfit, OSError) as e:
        sys.stderr.write("wheels: %s\n" % e)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
