"""Tests the pytest plugin and its measurements."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs torch")
# Imported before any test: pytester forgets what a run within this process imports, and parts of torch cannot
# be imported twice.
Peak = pytest.importorskip("gmemtop._peak").Peak
pytest_plugins = ["pytester"]
PLUGIN = ("-p", "gmemtop.pytest_plugin", "-p", "no:cacheprovider")


def measured(work: Any) -> int:
    with Peak() as peak:
        work()
    return peak.bytes["cpu"]


def two_after_another() -> None:
    a = torch.zeros(1000)
    del a
    torch.zeros(500)


def two_at_once() -> None:
    a = torch.zeros(1000)
    b = torch.zeros(500)
    del a, b


THERE = torch.zeros(1000)


@pytest.mark.parametrize(
    ("work", "size"),
    [
        (lambda: None, 0),
        (two_after_another, 4000),
        (two_at_once, 6000),
        (lambda: torch.zeros(1000).view(10, 100)[3].add_(1), 4000),  # views share their memory
        (lambda: THERE.view(10, 100).t().mul_(2), 0),  # it is older
        (lambda: THERE + 1, 4000),
        (lambda: torch.tensor([1.0, 2.0]), 8),
        (lambda: torch.zeros(1000, device="meta"), 0),
    ],
)
def test_bytes(work: Any, size: int) -> None:
    assert measured(work) == size


def test_a_backward_pass_agrees_with_arithmetic() -> None:
    x, layer = torch.ones(8, 16), torch.nn.Linear(16, 32, bias=False)

    def work() -> None:
        layer(x).sum().backward()

    # The layer's output is gone by then: the sum, its gradient, and the weight's gradient.
    assert measured(work) == 4 + 4 + 4 * 16 * 32


def test_results_are_the_same() -> None:
    def train() -> list[Any]:
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Dropout(), torch.nn.Linear(8, 8))
        optimizer = torch.optim.AdamW(model.parameters())
        for _ in range(5):
            optimizer.zero_grad()
            model(torch.randn(4, 8)).square().mean().backward()
            optimizer.step()
        return [p.detach().clone() for p in model.parameters()] + [torch.get_rng_state()]

    alone = train()
    with Peak():
        watched = train()
    assert all(torch.equal(a, b) for a, b in zip(alone, watched))


TEST = """
import os, torch, pytest

@pytest.mark.gmemtop_peak
def test_marked():
    torch.zeros(int(os.environ["SIZE"]))

@pytest.mark.gmemtop_peak(growth=0.5)
def test_generous():
    torch.zeros(int(os.environ["SIZE"]))

def test_block(gmemtop_peak):
    torch.zeros(10**6)
    with gmemtop_peak as peak:
        torch.zeros(int(os.environ["SIZE"]))
    assert peak.bytes["cpu"] == 4 * int(os.environ["SIZE"])

def test_other():
    pass
"""


def test_a_peak_that_grew_fails_its_test(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    pytester.makepyfile(TEST)

    def run(size: int, *arguments: str) -> pytest.RunResult:
        monkeypatch.setenv("SIZE", str(size))
        return pytester.runpytest_inprocess(*PLUGIN, *arguments)

    first = run(100000)
    first.assert_outcomes(passed=4, warnings=3)
    first.stdout.fnmatch_lines(["*no memory peak is recorded for this test: run pytest --gmemtop-update*"])
    baseline = pytester.path / "gmemtop-peaks.json"
    assert not baseline.exists()

    run(100000, "--gmemtop-update").assert_outcomes(passed=4)
    recorded = json.loads(baseline.read_text())
    assert set(recorded.values().__iter__().__next__()) == {"cpu"}
    assert [peaks["cpu"] for peaks in recorded.values()] == [400000] * 3

    run(100000).assert_outcomes(passed=4)
    run(101000).assert_outcomes(passed=4)  # within two per cent
    grew = run(130000)
    grew.assert_outcomes(passed=2, failed=2)
    grew.stdout.fnmatch_lines(
        [
            "*: 507.8 KiB, 30.0 % more than the recorded 390.6 KiB (2 % are allowed)",
            "if that is meant: pytest --gmemtop-update, then commit gmemtop-peaks.json",
        ]
    )
    run(160000).assert_outcomes(passed=1, failed=3)
    assert json.loads(baseline.read_text()) == recorded

    run(130000, "--gmemtop-update", "-k", "marked").assert_outcomes(passed=1, deselected=3)
    assert sorted(p["cpu"] for p in json.loads(baseline.read_text()).values()) == [400000, 400000, 520000]


def test_a_damaged_baseline_is_named(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(TEST)
    for text in ("{", "[]", '{"a": 1}', '{"a": {"cpu": "much"}}'):
        Path(pytester.path / "gmemtop-peaks.json").write_text(text)
        done = pytester.runpytest_inprocess(*PLUGIN)
        assert done.ret == pytest.ExitCode.USAGE_ERROR
        done.stderr.fnmatch_lines(["*does not hold peaks: remove it, then run pytest --gmemtop-update*"])
