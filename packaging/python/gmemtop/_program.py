"""Finds the program that the wheel installed."""

from __future__ import annotations

import os
import shutil
import site
import sys
import sysconfig


class Missing(Exception):
    """The program is not installed."""


def find_program() -> str:
    """The path of the program gmemtop: the one that GMEMTOP_PROGRAM names, otherwise the one installed with
    this package, otherwise the first on PATH."""
    named = os.environ.get("GMEMTOP_PROGRAM")
    if named:
        if os.access(named, os.X_OK):
            return named
        raise Missing("GMEMTOP_PROGRAM names %s, which is not a program" % named)
    folders = [sysconfig.get_path("scripts")]
    if site.ENABLE_USER_SITE:
        folders.append(os.path.join(site.getuserbase(), "bin"))
    # pip install --target puts programs into bin beside the package.
    folders.append(os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "bin"))
    for folder in folders:
        path = os.path.join(folder, "gmemtop")
        if os.access(path, os.X_OK) and os.path.isfile(path):
            return path
    found = shutil.which("gmemtop")
    if found is not None:
        return found
    raise Missing(
        "the program gmemtop is not installed for %s: pip install --force-reinstall gmemtop, or let "
        "GMEMTOP_PROGRAM name it" % sys.executable
    )
