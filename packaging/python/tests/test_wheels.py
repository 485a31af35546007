"""The wheels: what is in them, and that they install."""

from __future__ import annotations

import csv
import hashlib
import os
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

import wheels


def elf(machine: int, *kinds: int) -> bytes:
    """The headers of a program for Linux with segments of some kinds."""
    header = bytearray(64)
    header[:5] = b"\x7fELF\x02"
    for at, n, value in ((18, 2, machine), (32, 8, 64), (54, 2, 56), (56, 2, len(kinds))):
        header[at : at + n] = value.to_bytes(n, "little")
    return bytes(header) + b"".join(k.to_bytes(4, "little") + bytes(52) for k in kinds)


def macho(machine: int) -> bytes:
    return b"\xcf\xfa\xed\xfe" + machine.to_bytes(4, "little") + bytes(24)


BINARIES = {
    "linux-amd64": elf(62, 1, 1),
    "linux-arm64": elf(183, 1),
    "darwin-amd64": macho(0x1000007),
    "darwin-arm64": macho(0x100000C),
}


@pytest.mark.parametrize(
    ("described", "version"),
    [
        ("v1.2.0", "1.2.0"),
        ("1.2", "1.2"),
        ("v1.2.0-rc1", "1.2.0rc1"),
        ("v1.2.0-beta.2", "1.2.0b2"),
        ("v1.2.0-3-gabc1234", "1.2.0.post3+gabc1234"),
        ("v1.2.0-3-gabc1234-dirty", "1.2.0.post3+gabc1234.dirty"),
        ("v1.2.0-dirty", "1.2.0+dirty"),
        ("abc1234", "0.0.0+gabc1234"),
        ("1234567", "1234567"),  # a tag of digits alone
    ],
)
def test_version(described: str, version: str) -> None:
    assert wheels.version_of(described) == version
    packaging = pytest.importorskip("packaging.version")
    assert str(packaging.Version(version)) == version


@pytest.mark.parametrize("described", ["", "dev", "v1.2.0-", "v1..2", "latest-3-gabc1234"])
def test_version_is_refused(described: str) -> None:
    with pytest.raises(wheels.Unfit):
        wheels.version_of(described)


@pytest.mark.parametrize(
    ("target", "program", "why"),
    [
        ("linux-amd64", elf(62, 1, 3), "not static"),
        ("linux-amd64", elf(183, 1), "built for another machine"),
        ("linux-arm64", elf(62, 1), "built for another machine"),
        ("linux-amd64", b"", "built for another machine"),
        ("darwin-arm64", macho(0x1000007), "built for another machine"),
        ("darwin-amd64", elf(62, 1), "built for another machine"),
    ],
)
def test_a_tag_must_be_true(target: str, program: bytes, why: str) -> None:
    with pytest.raises(wheels.Unfit, match=why):
        wheels.check_binary(target, program)


def build(folder: Path, binaries: dict[str, bytes], version: str = "v1.2.0") -> dict[str, Path]:
    folder.mkdir()
    for target, program in binaries.items():
        (folder / ("gmemtop-%s-%s" % (version, target))).write_bytes(program)
    out = folder / "new" / "wheels"
    assert wheels.main(["--version", version, "--binaries", str(folder), "--output", str(out)]) == 0
    return {t: next(out.glob("*%s.whl" % wheels.PLATFORMS[t][-1])) for t in binaries}


def test_the_same_bytes_twice(tmp_path: Path) -> None:
    first, second = build(tmp_path / "a", BINARIES), build(tmp_path / "b", BINARIES)
    assert len(set(first.values())) == 4
    for target, path in first.items():
        assert path.read_bytes() == second[target].read_bytes()
        assert path.name == second[target].name


def test_all_files_are_of_the_time_of_the_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    for path in build(tmp_path / "a", BINARIES).values():
        with zipfile.ZipFile(path) as z:
            assert {e.date_time for e in z.infolist()} == {(2023, 11, 14, 22, 13, 20)}


def test_the_record_has_every_file(tmp_path: Path) -> None:
    import base64

    for target, path in build(tmp_path / "a", BINARIES).items():
        with zipfile.ZipFile(path) as z:
            rows = list(csv.reader(z.read("gmemtop-1.2.0.dist-info/RECORD").decode().splitlines()))
            assert sorted(r[0] for r in rows) == sorted(z.namelist())
            for name, sum_, size in rows[:-1]:
                content = z.read(name)
                kind, _, text = sum_.partition("=")
                assert kind == "sha256"
                assert len(text) == 43, "the digest has no padding"
                assert base64.urlsafe_b64decode(text + "=") == hashlib.sha256(content).digest(), name
                assert int(size) == len(content)
            assert rows[-1][1:] == ["", ""]
            tags = [
                line.split("-")[-1]
                for line in z.read("gmemtop-1.2.0.dist-info/WHEEL").decode().splitlines()
                if line.startswith("Tag: ")
            ]
            assert tuple(tags) == wheels.PLATFORMS[target]
            assert path.name == "gmemtop-1.2.0-py3-none-%s.whl" % ".".join(tags)


def test_a_missing_binary_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert wheels.main(["--version", "v1.2.0", "--binaries", str(tmp_path), "--output", str(tmp_path)]) == 1
    assert "gmemtop-v1.2.0-linux-amd64" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs Linux: it installs the wheel for it")
def test_pip_installs_the_program_and_the_package(tmp_path: Path) -> None:
    """In a fresh environment, without an index, and without Go."""
    program = os.environ.get("GMEMTOP_PROGRAM", "/bin/true")
    machine = "arm64" if os.uname().machine == "aarch64" else "amd64"
    true = Path(program).read_bytes()
    binaries = dict(BINARIES)
    binaries["linux-" + machine] = true
    interp = wheels.check_binary
    wheels.check_binary = lambda *_: None  # type: ignore[assignment]  # /bin/true is not static
    try:
        path = build(tmp_path / "dist", binaries)["linux-" + machine]
    finally:
        wheels.check_binary = interp
    venv.create(tmp_path / "venv", with_pip=True)
    python = tmp_path / "venv" / "bin" / "python"
    env = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}

    def run(*command: str) -> str:
        done = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    run(str(python), "-m", "pip", "install", "-q", "--no-index", "--disable-pip-version-check", str(path))
    installed = run(str(python), "-c", "import gmemtop; print(gmemtop.find_program())")
    assert installed == str(tmp_path / "venv" / "bin" / "gmemtop")
    assert Path(installed).read_bytes() == true
    run(installed, "version")
    run(str(python), "-m", "gmemtop", "version")
    run(str(python), "-m", "pip", "uninstall", "-q", "-y", "gmemtop")
    assert not Path(installed).exists()
