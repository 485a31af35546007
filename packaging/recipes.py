"""Small texts of a release, from its version and checksums: the Homebrew formula, the conda recipe, the
version of the .deb and .rpm, and a bill of materials without what differs from build to build.

    python3 packaging/recipes.py formula dist/SHA256SUMS v1.2.0
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

from wheels import PLATFORMS, SUMMARY, Unfit, version_of

HOME = "https://github.com/gmemtop/gmemtop"
FORMULA = """class Gmemtop < Formula
  desc "{summary}"
  homepage "{home}"
  version "{version}"

{systems}
  def install
    bin.install Dir["gmemtop-*"].first => "gmemtop"
    generate_completions_from_executable(bin/"gmemtop", "completion")
    system bin/"gmemtop", "man", "--dir", buildpath/"man"
    man1.install Dir["man/*.1"]
  end

  test do
    assert_match "{described}", shell_output("#{{bin}}/gmemtop version")
  end
end
"""
SYSTEM = """  on_{system} do
    on_{machine} do
      url "{url}"
      sha256 "{sum}"
    end
  end

"""
# The name that each recipe has for a target.
BREW = {"linux": "linux", "darwin": "macos", "amd64": "intel", "arm64": "arm"}
CONDA = {
    "linux-amd64": "linux and x86_64",
    "linux-arm64": "linux and aarch64",
    "darwin-amd64": "osx and x86_64",
    "darwin-arm64": "osx and arm64",
}
RECIPE = """package:
  name: gmemtop
  version: "{version}"

source:
{sources}
build:
  number: 0
  script: "{{{{ PYTHON }}}} -m pip install --no-deps --no-build-isolation --no-index --find-links . gmemtop"

requirements:
  host:
    - python >=3.8
    - pip
  run:
    - python >=3.8

test:
  imports:
    - gmemtop
  commands:
    - gmemtop version

about:
  home: {home}
  summary: {summary}
"""


def checksums(text: str) -> dict[str, str]:
    """The checksums in a SHA256SUMS file, by file name."""
    sums = {}
    for line in text.splitlines():
        m = re.fullmatch(r"([0-9a-f]{64}) [ *](\S+)", line)
        if m is None:
            raise Unfit("%r is not a line of a SHA256SUMS file" % line)
        sums[m[2]] = m[1]
    return sums


def find(sums: dict[str, str], name: str) -> str:
    """The checksum of a file."""
    if name not in sums:
        raise Unfit("SHA256SUMS has no %s: build it with packaging/release.sh" % name)
    return sums[name]


def url(described: str, name: str) -> str:
    """The URL of a file of a release."""
    return "%s/releases/download/%s/%s" % (HOME, described, name)


def formula(sums: dict[str, str], described: str) -> str:
    """The Homebrew formula."""
    systems = ""
    for target in PLATFORMS:
        system, machine = target.split("-")
        name = "gmemtop-%s-%s" % (described, target)
        systems += SYSTEM.format(
            system=BREW[system], machine=BREW[machine], url=url(described, name), sum=find(sums, name)
        )
    return FORMULA.format(
        summary=SUMMARY, home=HOME, version=version_of(described), described=described, systems=systems
    ).replace("\n\n\n", "\n\n")


def conda(sums: dict[str, str], described: str) -> str:
    """The conda recipe, which installs the wheel."""
    version, sources = version_of(described), ""
    for target, platforms in PLATFORMS.items():
        name = "gmemtop-%s-py3-none-%s.whl" % (version, ".".join(platforms))
        for key, value in (("url", url(described, name)), ("sha256", find(sums, name))):
            sources += "  %s: %s  # [%s]\n" % (key, value, CONDA[target])
    return RECIPE.format(version=version, sources=sources, home=HOME, summary=SUMMARY)


def package_version(described: str) -> str:
    """The version of the .deb and .rpm, in which a release candidate comes before its release."""
    return re.sub(r"(?<=\d)(a|b|rc)(?=\d+(?:$|[+.]))", r"~\1", version_of(described))


def sbom(bill: dict[str, Any], described: str) -> str:
    """A bill of materials for a version, without the hashes of the tool that wrote it, which differ from
    machine to machine."""
    metadata = bill["metadata"]
    tools = metadata.get("tools", [])
    for tool in tools if isinstance(tools, list) else tools.get("components", []):
        tool.pop("hashes", None)
    main = metadata["component"]
    old, new = main.get("version", ""), described
    main["version"] = new
    text = json.dumps(bill, indent=2, sort_keys=True)
    return text.replace("gmemtop/gmemtop@" + old, "gmemtop/gmemtop@" + new) + "\n" if old else text + "\n"


def main(arguments: list[str]) -> int:
    try:
        if len(arguments) == 2 and arguments[0] == "version":
            print(package_version(arguments[1]))
        elif len(arguments) == 3 and arguments[0] in ("formula", "conda", "sbom"):
            text = Path(arguments[1]).read_text(encoding="utf-8")
            if arguments[0] == "sbom":
                sys.stdout.write(sbom(json.loads(text), arguments[2]))
            else:
                write = {"formula": formula, "conda": conda}[arguments[0]]
                sys.stdout.write(write(checksums(text), arguments[2]))
        else:
            sys.stderr.write(
                "usage: recipes.py formula|conda SHA256SUMS VERSION | sbom FILE VERSION | version VERSION\n"
            )
            return 2
    except (Unfit, OSError, ValueError, KeyError) as e:
        sys.stderr.write("recipes: %s\n" % e)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
