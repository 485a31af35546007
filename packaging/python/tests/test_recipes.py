"""Tests the files that are made from a release's checksums."""

from __future__ import annotations

import copy
import json
import shutil
import subprocess
from pathlib import Path

import pytest

import recipes
import wheels

VERSION = "v1.2.0-rc1"
NAMES = ["gmemtop-%s-%s" % (VERSION, t) for t in wheels.PLATFORMS] + [
    "gmemtop-1.2.0rc1-py3-none-%s.whl" % ".".join(p) for p in wheels.PLATFORMS.values()
]
SUMS = {name: "f%063x" % (k + 1) for k, name in enumerate(NAMES)}
TEXT = "".join("%s  %s\n" % (s, n) for n, s in SUMS.items())


def test_every_file_is_named_with_its_own_sum() -> None:
    sums = recipes.checksums(TEXT)
    assert sums == SUMS
    formula, recipe = recipes.formula(sums, VERSION), recipes.conda(sums, VERSION)
    for k, target in enumerate(wheels.PLATFORMS):
        system, machine = (recipes.BREW[word] for word in target.split("-"))
        part = formula.split("on_%s do\n    on_%s do\n" % (system, machine))[1].split("    end\n")[0]
        assert NAMES[k] + '"' in part
        assert '"%s"' % SUMS[NAMES[k]] in part
        lines = [line for line in recipe.splitlines() if line.endswith("# [%s]" % recipes.CONDA[target])]
        assert len(lines) == 2
        assert NAMES[k + 4] + "  #" in lines[0]
        assert SUMS[NAMES[k + 4]] in lines[1]


def test_the_recipe_is_a_recipe() -> None:
    yaml = pytest.importorskip("yaml", reason="needs the Python package pyyaml")
    text = recipes.conda(SUMS, VERSION).replace("{{ PYTHON }}", "python")
    keep = [line for line in text.splitlines() if "# [" not in line or "linux and x86_64" in line]
    recipe = yaml.safe_load("\n".join(keep))
    assert recipe["package"] == {"name": "gmemtop", "version": "1.2.0rc1"}
    assert recipe["source"]["sha256"] == SUMS[NAMES[4]]
    assert recipe["build"]["script"].startswith("python -m pip install")


@pytest.mark.skipif(shutil.which("ruby") is None, reason="needs ruby")
def test_the_formula_is_ruby(tmp_path: Path) -> None:
    (tmp_path / "gmemtop.rb").write_text(recipes.formula(SUMS, VERSION))
    subprocess.run(["ruby", "-c", str(tmp_path / "gmemtop.rb")], check=True)


@pytest.mark.parametrize(
    ("described", "version"),
    [
        ("v1.2.0", "1.2.0"),
        ("v1.2.0-rc1", "1.2.0~rc1"),
        ("v1.2.0-3-gabc1234", "1.2.0.post3+gabc1234"),
        ("abc1234", "0.0.0+gabc1234"),
        ("v1.2.0-rc1-3-gabc1234", "1.2.0~rc1.post3+gabc1234"),
    ],
)
def test_package_version(described: str, version: str) -> None:
    assert recipes.package_version(described) == version


@pytest.mark.parametrize("text", ["nonsense", "abc  file", "\n"])
def test_sums_that_are_none(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "SHA256SUMS").write_text(text)
    assert recipes.main(["formula", str(tmp_path / "SHA256SUMS"), VERSION]) == 1
    assert "is not a line of a SHA256SUMS file" in capsys.readouterr().err


def test_a_missing_file_is_named() -> None:
    for name in NAMES:
        sums = {n: s for n, s in SUMS.items() if n != name}
        with pytest.raises(wheels.Unfit, match="SHA256SUMS has no gmemtop-"):
            recipes.formula(sums, VERSION)
            recipes.conda(sums, VERSION)


def test_the_bill_of_materials_is_the_same_on_every_machine() -> None:
    bill = {
        "metadata": {
            "tools": [{"name": "tool", "hashes": [{"alg": "MD5", "content": "1"}]}],
            "component": {"purl": "pkg:golang/github.com/gmemtop/gmemtop@v0.0.0-1", "version": "v0.0.0-1"},
        },
        "components": [{"purl": "pkg:golang/example.com/other@v0.0.0-1"}],
    }
    other = copy.deepcopy(bill)
    other["metadata"]["tools"][0]["hashes"][0]["content"] = "2"  # type: ignore[index]
    text = recipes.sbom(bill, "v1.2.0")
    assert text == recipes.sbom(other, "v1.2.0")
    written = json.loads(text)
    assert written["metadata"]["component"]["version"] == "v1.2.0"
    assert written["metadata"]["component"]["purl"].endswith("gmemtop@v1.2.0")
    assert written["components"][0]["purl"].endswith("@v0.0.0-1")
