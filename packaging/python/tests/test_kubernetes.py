"""Checks the manifest for Kubernetes: its structure, and that gmemtop has its commands. Needs no cluster."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

PROGRAM = os.environ.get("GMEMTOP_PROGRAM", "")
pytestmark = pytest.mark.skipif(not PROGRAM, reason="needs GMEMTOP_PROGRAM: the program in the manifest")
MANIFEST = Path(__file__).parents[2] / "kubernetes" / "gmemtop.yaml"


@pytest.fixture
def kinds() -> dict[str, Any]:
    yaml = pytest.importorskip("yaml", reason="needs the Python package pyyaml")
    every = list(yaml.safe_load_all(MANIFEST.read_text()))
    assert all(one["apiVersion"] and one["metadata"]["name"] for one in every)
    return {one["kind"]: one for one in every}


def specs(kinds: dict[str, Any]) -> list[dict[str, Any]]:
    return [kinds["Pod"]["spec"], kinds["Job"]["spec"]["template"]["spec"]]


def test_nothing_is_privileged_or_holds_a_secret(kinds: dict[str, Any]) -> None:
    assert set(kinds) == {"Pod", "NetworkPolicy", "Job", "Service"}
    for spec in specs(kinds):
        assert spec["securityContext"]["runAsNonRoot"]
        assert not {"hostNetwork", "hostPID", "hostIPC"} & set(spec)
        for volume in spec["volumes"]:
            assert not {"hostPath", "secret"} & set(volume)
        for container in spec["containers"]:
            assert "privileged" not in container.get("securityContext", {})
            assert not container.get("securityContext", {}).get("capabilities", {}).get("add")


def test_mounts_names_and_ports_fit_each_other(kinds: dict[str, Any]) -> None:
    for spec in specs(kinds):
        volumes = {v["name"] for v in spec["volumes"]}
        for container in spec["containers"]:
            mounts = {m["name"]: m["mountPath"] for m in container["volumeMounts"]}
            assert set(mounts) <= volumes
            join = container["command"][container["command"].index("--join-file") + 1]
            assert Path(join).parent == Path(mounts["shared"])
    users = {spec["securityContext"]["runAsUser"] for spec in specs(kinds)}
    assert len(users) == 1, "a join file of another user is refused"
    pod, policy, job = kinds["Pod"], kinds["NetworkPolicy"]["spec"], kinds["Job"]
    assert policy["podSelector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()
    (rule,) = policy["ingress"]
    assert rule["from"] == [{"podSelector": {"matchLabels": {"job-name": job["metadata"]["name"]}}}]
    port = pod["spec"]["containers"][0]["ports"][0]["containerPort"]
    assert rule["ports"][0]["port"] == port
    assert kinds["Service"]["spec"]["selector"] == {"job-name": job["metadata"]["name"]}
    assert job["spec"]["template"]["spec"]["subdomain"] == kinds["Service"]["metadata"]["name"]


def test_the_commands_work_as_they_stand_there(kinds: dict[str, Any], tmp_path: Path) -> None:
    def here(command: list[str]) -> list[str]:
        assert command[0] == "gmemtop"
        words = [w.replace("$(POD_IP):7422", "127.0.0.1:0") for w in command[1:]]
        for folder in ("/shared", "/store"):
            words = [w.replace(folder, str(tmp_path)) for w in words]
        return [PROGRAM, *words]

    env = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "TMPDIR": "/tmp"}
    hub, train = (spec["containers"][0]["command"] for spec in specs(kinds))
    with subprocess.Popen(here(hub), env=env, stderr=subprocess.PIPE, text=True) as serving:
        try:
            join = tmp_path / "my-train.join"
            late = time.monotonic() + 30
            while not join.exists() and serving.poll() is None and time.monotonic() < late:
                time.sleep(0.05)
            assert json.loads(join.read_text())["run"] == "my-train"
            # Here, another program does the training.
            before = here(train[: train.index("--") + 1])
            done = subprocess.run(
                [*before, sys.executable, "-c", "print('trained')"],
                env=env,
                capture_output=True,
                text=True,
                timeout=60,
            )
            assert done.returncode == 0 and "trained" in done.stdout, done.stderr
        finally:
            serving.terminate()
            said = serving.communicate(timeout=60)[1]
    assert "listening at 127.0.0.1:" in said, said
