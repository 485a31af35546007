"""Fails a test whose memory peak grew.

    @pytest.mark.gmemtop_peak             # or gmemtop_peak(growth=0.05): up to 5 % more than recorded
    def test_step():
        train_one_step()

`pytest --gmemtop-update` records the peaks in gmemtop-peaks.json; put that file under version control. The
fixture gmemtop_peak marks a test too. Once its block has ended, it has the peak in bytes by device:

    def test_step(gmemtop_peak):
        with gmemtop_peak as peak:        # measures this block instead of the whole test
            train_one_step()
        assert peak.bytes["cpu"] < 2**20
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generator

import pytest

if TYPE_CHECKING:
    from ._peak import Peak

BASELINE = "gmemtop-peaks.json"
GROWTH = 0.02  # the allowed growth, as a share of the recorded peak
SLACK = 512  # bytes, a block of PyTorch's allocator: percentages mean little for a tiny test
DIGITS = ("B", "KiB", "MiB", "GiB", "TiB")


class Peaks:
    """The recorded and the new peaks, by test and device."""

    def __init__(self, path: Path, update: bool) -> None:
        self.path, self.update = path, update
        self.recorded: dict[str, dict[str, int]] = {}
        self.new: dict[str, dict[str, int]] = {}
        if path.exists():
            try:
                self.recorded = json.loads(path.read_text(encoding="utf-8"))
                assert all(isinstance(n, int) for peaks in self.recorded.values() for n in peaks.values())
            except (ValueError, AttributeError, AssertionError):
                raise pytest.UsageError(
                    "%s does not hold peaks: remove it, then run pytest --gmemtop-update" % path
                ) from None

    def check(self, test: str, bytes_: dict[str, int], growth: float) -> str:
        """What is wrong with the peaks of a test, "" for nothing."""
        self.new[test] = dict(bytes_)
        if self.update:
            return ""
        wrong = []
        for device, recorded in sorted(self.recorded.get(test, {}).items()):
            peak = bytes_.get(device)
            if peak is not None and peak > recorded * (1 + growth) + SLACK:
                more = ", %.1f %% more" % (100 * (peak - recorded) / recorded) if recorded else ""
                wrong.append(
                    "the memory peak grew on %s: %s%s than the recorded %s (%.3g %% are allowed)"
                    % (device, size(peak), more, size(recorded), 100 * growth)
                )
        if wrong:
            wrong.append("if that is meant: pytest --gmemtop-update, then commit %s" % self.path.name)
        return "\n".join(wrong)

    def write(self) -> None:
        """Record the new peaks, and keep those of tests that did not run."""
        if self.update and self.new:
            text = json.dumps({**self.recorded, **self.new}, indent=2, sort_keys=True)
            self.path.write_text(text + "\n", encoding="utf-8")


def size(n: int) -> str:
    """A number of bytes in words."""
    value, unit = float(n), 0
    while value >= 1024 and unit < len(DIGITS) - 1:
        value, unit = value / 1024, unit + 1
    return "%.4g %s" % (value, DIGITS[unit])


KEY: pytest.StashKey[Peaks] = pytest.StashKey()
BLOCK: pytest.StashKey[Any] = pytest.StashKey()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("gmemtop")
    group.addoption("--gmemtop-update", action="store_true", help="record the memory peaks of marked tests")
    parser.addini("gmemtop_peaks", "the file with the recorded memory peaks", default=BASELINE)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "gmemtop_peak(growth=0.02): fail if the memory peak grew by more than this share"
    )
    update = bool(config.getoption("--gmemtop-update"))
    if update and hasattr(config, "workerinput"):
        raise pytest.UsageError("--gmemtop-update needs one process: leave out -n")
    config.stash[KEY] = Peaks(config.rootpath / config.getini("gmemtop_peaks"), update)


def pytest_sessionfinish(session: pytest.Session) -> None:
    session.config.stash[KEY].write()


@pytest.fixture
def gmemtop_peak(request: pytest.FixtureRequest) -> Peak:
    """Measures the block of a with statement instead of the whole test."""
    pytest.importorskip("torch")
    from ._peak import Peak

    peak = request.node.stash[BLOCK] = Peak()
    return peak


@pytest.hookimpl(hookwrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, Any, None]:
    marker = pyfuncitem.get_closest_marker("gmemtop_peak")
    block = pyfuncitem.stash.get(BLOCK, None)
    if marker is None and block is None:
        yield
        return
    if block is not None:
        outcome = yield
        measured = block.bytes
    else:
        try:
            from ._peak import Peak
        except ImportError:
            pyfuncitem.warn(pytest.PytestWarning("gmemtop_peak measures nothing: torch is not installed"))
            yield
            return
        with Peak() as peak:
            outcome = yield
        measured = peak.bytes
    if outcome.excinfo is not None or not measured:
        return
    peaks = pyfuncitem.config.stash[KEY]
    growth = float(marker.kwargs.get("growth", GROWTH)) if marker is not None else GROWTH
    wrong = peaks.check(pyfuncitem.nodeid, measured, growth)
    if not peaks.update and pyfuncitem.nodeid not in peaks.recorded:
        pyfuncitem.warn(
            pytest.PytestWarning("no memory peak is recorded for this test: run pytest --gmemtop-update")
        )
    if wrong:
        outcome.force_exception(pytest.fail.Exception(wrong, pytrace=False))
