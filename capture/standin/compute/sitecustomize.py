"""Loads standin_compute once torch has been imported, and runs the sitecustomize that this file hides.

Python imports the first sitecustomize on its path. This folder comes first there, so the user's own would be
lost: we look it up and run it. Nothing here imports torch: a Python without it starts as before.
"""

import importlib.abc
import importlib.util
import os
import sys


_COMPUTE = os.environ.get("STANDIN_COMPUTE", "0") not in ("", "0")
_CLOCK = os.environ.get("STANDIN_CLOCK") == "program"


class _AfterTorch(importlib.abc.MetaPathFinder):
    """Finds torch as the other finders do, and installs the ops once its module body has run."""

    def find_spec(self, name, path=None, target=None):
        if name != "torch":
            return None
        spec = None  # libraries look for a module before anything imports it, so this finder stays
        for other in sys.meta_path[sys.meta_path.index(self) + 1 :]:
            spec = spec or other.find_spec(name, path, target)
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def exec_module(module):
            execute(module)
            sys.meta_path.remove(self)
            if _CLOCK:
                import standin_clock

                standin_clock.install()
            if _COMPUTE:
                import standin_compute

                standin_compute.install()

        spec.loader.exec_module = exec_module
        return spec


def _run_hidden():
    here = os.path.dirname(os.path.abspath(__file__))
    rest = [p for p in sys.path if os.path.abspath(p or ".") != here]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", rest)
    if spec is not None and spec.loader is not None:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


if _CLOCK:
    import standin_clock

    standin_clock.follow_host()
if _CLOCK or _COMPUTE:
    sys.meta_path.insert(0, _AfterTorch())
_run_hidden()
