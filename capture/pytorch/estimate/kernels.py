"""Triton kernels that a script or a library launches itself: we neither compile nor launch them. Their
arguments are tensors that are already allocated, and a launch allocates nothing.

Source: triton/runtime/jit.py, KernelInterface.__getitem__.
"""

import sys

from .training import tensors_in


def leave_triton_out(run):
    """Make Triton's kernels do nothing, once triton is imported."""

    def no_launch(kernel, grid):
        def launch(*args, **kwargs):
            run.note("Triton's kernels were not compiled and not run")
            for t in tensors_in(run.torch, args, kwargs):
                if run.known is not None and t.device.type == "cuda":
                    run.known.forget(t)  # the kernel may write to it

        return launch

    def leave_out(jit):
        jit.KernelInterface.__getitem__ = no_launch

    after_import("triton.runtime.jit", leave_out)


def after_import(name, act):
    """Call a function with a module: at once if it has been imported, otherwise as soon as it is."""
    if name in sys.modules:
        act(sys.modules[name])
    else:
        sys.meta_path.insert(0, _AfterImport(name, act))


class _AfterImport:
    """A finder that calls a function with one module, once the module has been imported."""

    def __init__(self, name, act):
        self.name, self.act = name, act

    def find_spec(self, name, path=None, target=None):
        if name != self.name:
            return None
        for other in sys.meta_path[sys.meta_path.index(self) + 1 :]:
            spec = other.find_spec(name, path, target)
            if spec is not None:
                break
        else:
            return None
        execute = spec.loader.exec_module

        def exec_module(module):
            execute(module)
            sys.meta_path.remove(self)
            self.act(module)

        spec.loader.exec_module = exec_module
        return spec
