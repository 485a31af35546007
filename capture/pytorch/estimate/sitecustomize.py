"""First on PYTHONPATH in programs that gmemtop estimates: runs the sitecustomize that it hides, and takes
over once torch is imported."""

import os
import sys


class _Finder:
    """The first finder of imports: finds nothing itself, and wraps the loader of torch."""

    def __init__(self, folder, placeholder):
        self.folder, self.placeholder = folder, placeholder

    def find_spec(self, name, path=None, target=None):
        if self.placeholder is not None and sys.modules.get("sitecustomize") is self.placeholder:
            del sys.modules["sitecustomize"]  # Python had none of its own
        self.placeholder = None
        if name != "torch":
            return None
        spec = behind(self, name, path, target)
        if spec is None or spec.loader is None:
            return spec
        loader, folder, original = spec.loader, self.folder, spec.loader.exec_module

        def exec_module(module):
            original(module)
            del loader.exec_module
            sys.meta_path.remove(self)
            with open(os.path.join(folder, "estimate.py")) as f:
                space = {"__name__": "gmemtop_estimate"}
                exec(compile(f.read(), "gmemtop_estimate", "exec"), space)
            space["begin"](module, folder)

        loader.exec_module = exec_module
        return spec


def behind(finder, name, path, target):
    """What the finders after this one find. This one stays in place, since libraries look for torch before
    anything imports it."""
    for other in sys.meta_path[sys.meta_path.index(finder) + 1 :]:
        find = getattr(other, "find_spec", None)
        spec = find(name, path, target) if find is not None else None
        if spec is not None:
            return spec
    return None


def chain():
    folder = os.path.dirname(os.path.abspath(__file__))
    here = sys.modules.get("sitecustomize")
    sys.path[:] = [p for p in sys.path if os.path.abspath(p) != folder]
    from importlib import machinery

    spec = machinery.PathFinder.find_spec("sitecustomize", sys.path)
    found = spec is not None and spec.loader is not None
    sys.meta_path.insert(0, _Finder(folder, None if found else here))
    return spec if found else None


_spec = chain()
if _spec is not None:
    import importlib.util

    _module = importlib.util.module_from_spec(_spec)
    sys.modules["sitecustomize"] = _module
    _spec.loader.exec_module(_module)
