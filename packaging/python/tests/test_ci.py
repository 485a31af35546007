"""Runs the script of the GitHub Action and of the GitLab template with real recordings."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

PROGRAM = os.environ.get("GMEMTOP_PROGRAM", "")
pytestmark = pytest.mark.skipif(not PROGRAM, reason="needs GMEMTOP_PROGRAM: the program that compares")
CI = Path(__file__).parents[2] / "ci"
SAMPLES = Path(__file__).parents[3] / "traces" / "samples"
SMALL, LARGE = SAMPLES / "resnet18-cpu.gmt", SAMPLES / "gpt-cpu.gmt"


def gitlab_script() -> str:
    yaml = pytest.importorskip("yaml", reason="needs the Python package pyyaml")
    job = yaml.safe_load((CI / "gitlab.yml").read_text())[".gmemtop"]
    assert job["artifacts"]["paths"] == [job["variables"]["GMEMTOP_REPORT"]]
    return str(job["script"][0])


@pytest.fixture(params=["github", "gitlab"])
def gate(request: pytest.FixtureRequest, tmp_path: Path) -> list[str]:
    (tmp_path / "gmemtop").symlink_to(PROGRAM)
    if request.param == "github":
        return [str(CI / "gate.sh")]
    return ["bash", "-e", "-o", "pipefail", "-c", gitlab_script()]


def run(gate: list[str], folder: Path, base: object, head: object, fail_if: str) -> tuple[int, str]:
    env = {
        "PATH": "%s:/usr/bin:/bin" % folder,
        "HOME": str(folder),
        "GMEMTOP_BASE": str(base),
        "GMEMTOP_HEAD": str(head),
        "GMEMTOP_FAIL_IF": fail_if,
        "GMEMTOP_REPORT": str(folder / "report.md"),
        "GITHUB_STEP_SUMMARY": str(folder / "summary.md"),
    }
    done = subprocess.run(gate, env=env, cwd=folder, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def peak(recording: Path) -> int:
    import json

    done = subprocess.run([PROGRAM, "stats", "--json", str(recording)], capture_output=True, check=True)
    return int(json.loads(done.stdout)["devices"][0]["peak_allocated_bytes"])


def test_it_fails_only_if_a_condition_holds(gate: list[str], tmp_path: Path) -> None:
    code, text = run(gate, tmp_path, SMALL, SMALL, "peak>+2%")
    assert code == 0, text
    small, large = sorted((SMALL, LARGE), key=peak)
    code, text = run(gate, tmp_path, small, large, "peak>+2%")
    assert code == 3, text
    report = (tmp_path / "report.md").read_text()
    assert "peak" in report
    assert report in text
    assert run(gate, tmp_path, large, small, "peak>+2%")[0] == 0


def test_what_cannot_be_compared_is_no_pass(gate: list[str], tmp_path: Path) -> None:
    code, text = run(gate, tmp_path, SMALL, tmp_path / "none.pickle", "peak>+2%")
    assert code not in (0, 3)
    assert "none.pickle" in text
    code, text = run(gate, tmp_path, SMALL, SMALL, "nonsense")
    assert code not in (0, 3), text
    code, text = run(gate, tmp_path, SMALL, SMALL, '$(touch harm)"; touch harm; "')
    assert code not in (0, 3), text
    assert not (tmp_path / "harm").exists()


def test_several_conditions_of_the_action(tmp_path: Path) -> None:
    (tmp_path / "gmemtop").symlink_to(PROGRAM)
    script = [str(CI / "gate.sh")]
    assert run(script, tmp_path, SMALL, SMALL, "peak>+2%\n  \npeak>1GiB\n")[0] == 0
    assert run(script, tmp_path, SMALL, SMALL, "peak>+2%\npeak>1KiB")[0] == 3
    code, text = run(script, tmp_path, SMALL, SMALL, "\n \n")
    assert (code, "has no condition" in text) == (2, True)


def test_the_action_is_one() -> None:
    yaml = pytest.importorskip("yaml", reason="needs the Python package pyyaml")
    action = yaml.safe_load((CI / "action.yml").read_text())
    used = set(re.findall(r"\$\{\{ inputs\.([\w-]+) \}\}", str(action))) | {"comment"}
    assert used == set(action["inputs"])
    for step in action["runs"]["steps"]:
        assert "${{" not in step["run"], "an input must not become part of a command"
        subprocess.run(["bash", "-n", "-c", step["run"]], check=True)
