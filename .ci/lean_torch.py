"""Lets the tests' trainings start with the parts of PyTorch that they use: in 2.6 s of a processor, not 6.4.

Two imports take most of the time, and a training that compiles nothing makes no use of either:

- torch._dynamo, which torch.optim imports at its first step only to call two functions that do nothing then.
  Here these are answered without the import. Whatever else is asked of torch._dynamo imports it, as always.
- torch._meta_registrations, with which tensors without memory get their shapes. torch._dynamo brings it along
  here. A program that uses such tensors by itself does not set the variable below.

.ci/run starts hundreds of Pythons and does little else. It puts this file into its own virtual environment,
beside a .pth file that imports it at start. Only Pythons with the variable below use it: the tests of
estimates, those of commands that are scripts, and all that run on the stand-in GPU use torch as it is.
"""

import importlib
import importlib.util
import os
import sys
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

DYNAMO, META = "torch._dynamo", "torch._meta_registrations"


def load():
    """Puts the real modules in the place of the stubs, and returns torch._dynamo."""
    if finder in sys.meta_path:
        sys.meta_path.remove(finder)
    for name in META, DYNAMO:
        if isinstance(sys.modules.get(name), Stub):
            del sys.modules[name]
        importlib.import_module(name)
    return sys.modules[DYNAMO]


class Stub(ModuleType):
    """A module until something is asked of it that takes the real one."""

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        load()
        return getattr(sys.modules[self.__name__], name)


class Dynamo(Stub):
    __path__ = ()  # a package: its modules are looked for, and Finder hears of it

    @staticmethod
    def disable(fn, recursive=True, *, wrapping=True):
        return fn

    @staticmethod
    def graph_break(msg=""):
        pass


class Known(Loader):
    """Gives a module that the import of torch._dynamo has imported already."""

    def create_module(self, spec):
        return sys.modules[spec.name]

    def exec_module(self, module):
        pass


class Finder(MetaPathFinder):
    def find_spec(self, fullname, path=None, target=None):
        if fullname in (DYNAMO, META):
            return ModuleSpec(fullname, self, is_package=fullname == DYNAMO)
        if not fullname.startswith(DYNAMO + "."):
            return None
        load()
        if fullname in sys.modules:
            return ModuleSpec(fullname, Known())
        return importlib.util.find_spec(fullname)

    def create_module(self, spec):
        return (Dynamo if spec.name == DYNAMO else Stub)(spec.name)

    def exec_module(self, module):
        pass


finder = Finder()
if os.environ.get("GMEMTOP_TEST_LEAN_TORCH"):
    sys.meta_path.insert(0, finder)
