"""Records trainings from inside, with real torch, Lightning, transformers and IPython."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="needs torch")
PROGRAM = os.environ.get("GMEMTOP_PROGRAM", "")
needs_program = pytest.mark.skipif(not PROGRAM, reason="needs GMEMTOP_PROGRAM: the program that records")
pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs Linux: it records there")

MODEL = """
import hashlib, os, random, sys
import numpy, torch
torch.manual_seed(0)
torch.set_num_threads(1)
model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.Dropout(), torch.nn.Linear(256, 64))
optimizer = torch.optim.AdamW(model.parameters())
def train(steps=20):
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(32, 64)).square().mean().backward()
        optimizer.step()
def result():
    h = hashlib.sha256()
    for p in model.parameters():
        h.update(p.detach().numpy().tobytes())
        for s in optimizer.state[p].values():
            h.update(s.numpy().tobytes())
    h.update(torch.get_rng_state().numpy().tobytes())
    h.update(repr((random.getstate(), numpy.random.get_state())).encode() if "seeded" in sys.argv else b"")
    return h.hexdigest()
random.seed(1), numpy.random.seed(1)
"""


def script(
    folder: Path, text: str, *arguments: str, env: dict[str, str] | None = None, model: str = MODEL
) -> subprocess.CompletedProcess[str]:
    """Run a script with the package, and with the program if there is one."""
    path = folder / "script.py"
    path.write_text(model + textwrap.dedent(text))
    paths = [str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    return subprocess.run(
        [sys.executable, str(path), *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=500,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PYTHONHASHSEED": "0", **(env or {})},
    )


def steps_of(recording: Path) -> int:
    """How many steps a recording has, according to the program."""
    done = subprocess.run([PROGRAM, "stats", "--json", str(recording)], capture_output=True, check=True)
    return len(json.loads(done.stdout)["devices"][0]["iterations"])


@needs_program
def test_a_watched_training_has_the_same_results(tmp_path: Path) -> None:
    alone = script(tmp_path, "train(); print(result())", "seeded")
    watched = script(
        tmp_path,
        """
        import gmemtop
        with gmemtop.watch("run.gmt", every=5) as w:
            assert w.recording
            train()
        assert not w.recording
        print(result())
        page = w.report()
        assert page.name == "run.html" and "<svg" in page.read_text(), page
        assert w.report("picture.svg", "svg").read_text().startswith("<")
        assert w.stats()["devices"], w.stats()
        assert [t.name for t in __import__("threading").enumerate()] == ["MainThread"]
        """,
        "seeded",
    )
    assert watched.returncode == 0, watched.stderr
    assert watched.stderr == ""
    assert watched.stdout == alone.stdout
    assert 3 <= steps_of(tmp_path / "run.gmt") <= 6  # the first two, and one in five of twenty


@needs_program
def test_a_recording_ends_with_the_process(tmp_path: Path) -> None:
    done = script(tmp_path, "import gmemtop\ngmemtop.watch('run.gmt')\ntrain()\nraise SystemExit(3)")
    assert (done.returncode, done.stderr) == (3, "")
    assert steps_of(tmp_path / "run.gmt") >= 2


@needs_program
def test_ranks_write_their_own_files(tmp_path: Path) -> None:
    done = script(tmp_path, "import gmemtop\ngmemtop.watch('run.gmt')\ntrain()", env={"RANK": "1"})
    assert done.stderr == ""
    assert [p.name for p in tmp_path.glob("*.gmt")] == ["run-rank1.gmt"]


@functools.lru_cache(maxsize=None)
def result_of(work: str) -> str:
    """The output of a script without gmemtop."""
    with tempfile.TemporaryDirectory() as folder:
        return script(Path(folder), work + "print(result())").stdout


FAILURES = {
    "no program": ({"GMEMTOP_PROGRAM": "/nonexistent"}, "train()", "/nonexistent, which is not a program"),
    "a program that ends": ({"GMEMTOP_PROGRAM": "/bin/false"}, "train()", "the recorder did not start"),
    "a program that says nonsense": ({"GMEMTOP_PROGRAM": "/bin/echo"}, "train()", "nothing is recorded"),
    "a file that exists": ({}, "train()", "exists: name another file, or use force=True"),
    "no folder": ({}, "train()", "nothing is recorded"),
    "no training": ({}, "", "no training step"),
}


@needs_program
@pytest.mark.parametrize("failure", FAILURES)
def test_what_fails_is_one_warning(tmp_path: Path, failure: str) -> None:
    """The script goes on, even under -W error, and has the same results."""
    env, work, message = FAILURES[failure]
    if failure == "a file that exists":
        (tmp_path / "run.gmt").write_text("mine")
    path = "nowhere/run.gmt" if failure == "no folder" else "run.gmt"
    text = """
    import gmemtop
    for _ in range(2):
        w = gmemtop.watch({path!r})
        {work}
        recording = w.stop()
        assert recording is None or {exists}, recording
    print(result())
    """.format(path=path, work=work or "pass", exists=failure == "a file that exists")
    alone = result_of((work + "\n") * 2)
    modes = [{"PYTHONWARNINGS": "error"}]
    if failure == "no folder":  # one is enough: each run imports torch, which takes seconds
        modes.append({})
    for python in modes:
        done = script(tmp_path, text, env={**env, **python})
        assert done.returncode == 0, done.stderr
        assert done.stdout == alone != ""
        assert message in done.stderr
        assert done.stderr.count("gmemtop: ") == 1, done.stderr
    if failure == "a file that exists":
        assert (tmp_path / "run.gmt").read_text() == "mine"


@needs_program
def test_torch_comes_first(tmp_path: Path) -> None:
    done = script(tmp_path, "import gmemtop; gmemtop.watch()", model="")
    assert done.returncode == 0
    assert "import torch before gmemtop.watch()" in done.stderr


@needs_program
def test_a_recorder_that_is_killed_harms_nothing(tmp_path: Path) -> None:
    alone = script(tmp_path, "train(40); print(result())")
    done = script(
        tmp_path,
        """
        import gmemtop
        w = gmemtop.watch("run.gmt")
        train()
        w._recorder.kill()
        train()
        w.stop()
        print(result())
        """,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == alone.stdout
    assert done.stderr.count("gmemtop: ") == 1


LIGHTNING = """
import torch
try:
    import lightning.pytorch as pl
except ImportError:
    import pytorch_lightning as pl
class Net(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(32, 32)
    def training_step(self, batch, k):
        if "raise" in sys.argv and k == 5:
            raise ValueError("mine")
        return self.layer(batch).square().mean()
    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters())
def fit(*callbacks):
    pl.seed_everything(0)
    net = Net()
    trainer = pl.Trainer(max_epochs=1, accelerator="cpu", logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, callbacks=list(callbacks))
    trainer.fit(net, torch.utils.data.DataLoader(torch.randn(64, 32), batch_size=8))
    print([p.sum().item().hex() for p in net.parameters()])
"""


@needs_program
def test_lightning(tmp_path: Path) -> None:
    pytest.importorskip("lightning", reason="needs the Python package lightning")
    alone = script(tmp_path, LIGHTNING + "fit()")
    assert alone.returncode == 0, alone.stderr
    watched = script(tmp_path, LIGHTNING + "from gmemtop.lightning import Gmemtop\nfit(Gmemtop('run.gmt'))")
    assert watched.returncode == 0, watched.stderr
    assert watched.stdout == alone.stdout
    assert "gmemtop: " not in watched.stderr
    assert steps_of(tmp_path / "run.gmt") >= 2
    raised = script(
        tmp_path,
        LIGHTNING + "from gmemtop.lightning import Gmemtop\ng = Gmemtop('raised.gmt')\n"
        "try: fit(g)\nexcept ValueError: assert not g.watch.recording\nelse: raise SystemExit(1)",
        "raise",
    )
    assert raised.returncode == 0, raised.stderr
    assert steps_of(tmp_path / "raised.gmt") >= 2


TRANSFORMERS = """
import torch, transformers
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(32, 32)
    def forward(self, x, labels=None):
        return {"loss": self.layer(x).square().mean()}
def fit(*callbacks):
    transformers.set_seed(0)
    net = Net()
    arguments = transformers.TrainingArguments("out", max_steps=10, per_device_train_batch_size=8,
        use_cpu=True, report_to=[], save_strategy="no", disable_tqdm=True, logging_strategy="no")
    data = [{"x": x, "labels": 0} for x in torch.randn(64, 32)]
    transformers.Trainer(net, arguments, train_dataset=data, callbacks=list(callbacks)).train()
    print([p.sum().item().hex() for p in net.parameters()])
"""


@needs_program
def test_transformers(tmp_path: Path) -> None:
    pytest.importorskip("transformers", reason="needs the Python package transformers")
    pytest.importorskip("accelerate", reason="needs the Python package accelerate")
    alone = script(tmp_path, TRANSFORMERS + "fit()")
    assert alone.returncode == 0, alone.stderr
    watched = script(
        tmp_path, TRANSFORMERS + "from gmemtop.transformers import Gmemtop\nfit(Gmemtop('run.gmt'))"
    )
    assert watched.returncode == 0, watched.stderr
    mine = [line for line in watched.stdout.splitlines() if line.startswith("[")]
    assert mine == [line for line in alone.stdout.splitlines() if line.startswith("[")] != []
    assert "gmemtop: " not in watched.stderr
    assert steps_of(tmp_path / "run.gmt") >= 2


@needs_program
def test_the_cell_magic_shows_the_report(tmp_path: Path) -> None:
    pytest.importorskip("IPython", reason="needs the Python package IPython")
    done = script(
        tmp_path,
        """
        from IPython.core.interactiveshell import InteractiveShell
        from IPython.utils.capture import capture_output
        shell = InteractiveShell.instance()
        shell.user_ns.update(train=train, model=model)
        shell.run_line_magic("load_ext", "gmemtop")
        with capture_output() as shown:
            shell.run_cell_magic("gmemtop", "-o kept.gmt --height 300", "train()\\nanswer = 42")
        assert shell.user_ns["answer"] == 42
        frames = [o.data["text/html"] for o in shown.outputs if "text/html" in o.data]
        assert len(frames) == 1 and "height:300px" in frames[0] and "&lt;svg" in frames[0], frames
        with capture_output() as shown:
            shell.run_cell_magic("gmemtop", "--wrong", "answer = 43")
            shell.run_cell_magic("gmemtop", "", "train()\\n1 / 0")
        assert shell.user_ns["answer"] == 43
        assert "ZeroDivisionError" in shown.stdout + shown.stderr
        assert len([o for o in shown.outputs if "text/html" in o.data]) == 1
        """,
    )
    assert done.returncode == 0, done.stderr
    assert steps_of(tmp_path / "kept.gmt") >= 2
