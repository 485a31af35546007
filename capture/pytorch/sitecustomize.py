"""First on PYTHONPATH in programs that gmemtop starts: runs the sitecustomize that it hides, and starts the
agent when torch is imported.

It imports nothing that Python has not imported already, and never torch. In a process that does not import
torch, it only leaves a finder that looks at names. Whatever goes wrong here, the program starts as it would
have.
"""
import os
import sys


class _Finder(object):
    """The first finder of imports: finds nothing itself, and wraps the loader of torch."""

    def __init__(self, folder, placeholder):
        self.folder, self.placeholder = folder, placeholder

    def find_spec(self, name, path=None, target=None):
        if self.placeholder is not None and sys.modules.get("sitecustomize") is self.placeholder:
            del sys.modules["sitecustomize"]  # Python had none of its own
        self.placeholder = None
        if name != "torch":
            return None
        try:
            spec = behind(self, name, path, target)
            if spec is None or spec.loader is None:
                return spec
            loader, folder, original = spec.loader, self.folder, spec.loader.exec_module

            def exec_module(module):
                original(module)
                try:
                    del loader.exec_module
                    sys.meta_path.remove(self)
                    wake(folder)
                except Exception:
                    pass

            loader.exec_module = exec_module
            return spec
        except Exception:
            return None


def behind(finder, name, path, target):
    """What the finders after this one find. This one stays in place, since libraries look for torch before
    anything imports it."""
    for other in sys.meta_path[sys.meta_path.index(finder) + 1 :]:
        find = getattr(other, "find_spec", None)
        spec = find(name, path, target) if find is not None else None
        if spec is not None:
            return spec
    return None


def wake(folder):
    """Run the agent in a namespace that is not in sys.modules."""
    path = os.environ.get("GMEMTOP_SOCK", "")
    with open(os.path.join(folder, "agent.py")) as f:
        space = {"__name__": "gmemtop_agent"}
        exec(compile(f.read(), "gmemtop_agent", "exec"), space)
    if path:
        space["Agent"](path, True).launch()


def chain():
    folder = os.path.dirname(os.path.abspath(__file__))
    here = sys.modules.get("sitecustomize")
    sys.path[:] = [p for p in sys.path if os.path.abspath(p) != folder]
    from importlib import machinery

    spec = machinery.PathFinder.find_spec("sitecustomize", sys.path)
    found = spec is not None and spec.loader is not None
    if not any(isinstance(f, _Finder) for f in sys.meta_path):
        sys.meta_path.insert(0, _Finder(folder, None if found else here))
    return spec if found else None


try:
    _spec = chain()
except Exception:
    _spec = None
if _spec is not None:  # outside the guard: its errors are the program's own, as they would be without us
    import importlib.util

    _module = importlib.util.module_from_spec(_spec)
    sys.modules["sitecustomize"] = _module
    _spec.loader.exec_module(_module)
