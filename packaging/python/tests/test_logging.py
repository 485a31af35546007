"""Runs the code of docs/logging.md unchanged with the real libraries."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest

import gmemtop

PROGRAM = os.environ.get("GMEMTOP_PROGRAM", "")
pytestmark = pytest.mark.skipif(not PROGRAM, reason="needs GMEMTOP_PROGRAM: the program that reports")
ROOT = Path(__file__).parents[3]


def code(title: str) -> Any:
    """The function log_memory of a section."""
    text = (ROOT / "docs" / "logging.md").read_text(encoding="utf-8")
    section = re.search(r"^## %s\n(.*?)(?=^## |\Z)" % re.escape(title), text, re.M | re.S)
    assert section is not None
    (source,) = re.findall(r"```python\n(.*?)```", section[1], re.S)
    names: dict[str, Any] = {}
    exec(compile(source, title, "exec"), names)
    return names["log_memory"]


@pytest.fixture
def watch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> gmemtop.Watch:
    """A recording that has ended: one of the embedded samples."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "run.gmt"
    path.write_bytes((ROOT / "traces" / "samples" / "resnet18-cpu.gmt").read_bytes())
    return gmemtop.Watch(path)


@pytest.fixture
def nothing(tmp_path: Path) -> gmemtop.Watch:
    """A recording that was never made."""
    return gmemtop.Watch(tmp_path / "none.gmt")


def test_wandb(watch: gmemtop.Watch, nothing: gmemtop.Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    wandb = pytest.importorskip("wandb", reason="needs the Python package wandb")
    monkeypatch.setenv("WANDB_SILENT", "true")
    run = wandb.init(mode="offline", project="gmemtop")
    try:
        log = code("Weights & Biases")
        log(nothing, run)
        assert "peak_allocated_bytes" not in run.summary.keys()  # it is not a dict
        log(watch, run)
        assert run.summary["peak_allocated_bytes"] > 1 << 20
    finally:
        run.finish()
    (page,) = Path("wandb").glob("offline-run-*/files/media/html/*.html")
    assert "<svg" in page.read_text(encoding="utf-8")


def test_mlflow(watch: gmemtop.Watch, nothing: gmemtop.Watch, tmp_path: Path) -> None:
    mlflow = pytest.importorskip("mlflow", reason="needs the Python package mlflow")
    os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"
    mlflow.set_tracking_uri((tmp_path / "mlruns").as_uri())
    log = code("MLflow")
    with mlflow.start_run() as run:
        log(nothing)
        log(watch)
    logged = mlflow.get_run(run.info.run_id)
    assert logged.data.metrics["peak_allocated_bytes"] > 1 << 20
    kept = {p.name for p in (tmp_path / "mlruns").rglob("artifacts/*")}
    assert kept == {"memory.html", "run.gmt"}


def test_tensorboard(watch: gmemtop.Watch, nothing: gmemtop.Watch, tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="needs the Python package tensorboard")
    pytest.importorskip("torch", reason="needs torch")
    from torch.utils.tensorboard import SummaryWriter

    log = code("TensorBoard")
    with SummaryWriter(tmp_path / "events") as writer:
        log(nothing, writer)
        log(watch, writer)
    (events,) = (tmp_path / "events").iterdir()
    content = events.read_bytes()
    assert b"peak_allocated_bytes" in content
    assert b"memory/text_summary" in content
