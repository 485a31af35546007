"""Lets the tests' trainings start without PyTorch's compiler, which takes three seconds of a processor.

torch.optim imports torch._dynamo at the first step, though nothing is compiled, only to call two functions
that do nothing then. .ci/run starts hundreds of Pythons and does little else, so here the two are answered
without the import. Any other use of torch._dynamo imports it as usual. .ci/run installs this file into its
own virtual environment, with a .pth file that imports it at startup. It does nothing unless the variable
below is set, so scripts of commands and everything on the stand-in GPU train with an unmodified torch.
"""

import importlib
import importlib.util
import os
import sys
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

NAME = "torch._dynamo"


def load():
    """Puts the real module in the place of the stub, and returns it."""
    if finder in sys.meta_path:
        sys.meta_path.remove(finder)
    if isinstance(sys.modules.get(NAME), Stub):
        del sys.modules[NAME]
    return importlib.import_module(NAME)


class Stub(ModuleType):
    """torch._dynamo until something is asked of it that needs the compiler."""

    __path__ = ()  # a package: its modules are looked for, and Finder hears of it

    @staticmethod
    def disable(fn, recursive=True, *, wrapping=True):
        return fn

    @staticmethod
    def graph_break(msg=""):
        pass

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(load(), name)


class Known(Loader):
    """Gives a module that the import of torch._dynamo has imported already."""

    def create_module(self, spec):
        return sys.modules[spec.name]

    def exec_module(self, module):
        pass


class Finder(MetaPathFinder):
    def find_spec(self, fullname, path=None, target=None):
        if fullname == NAME:
            return ModuleSpec(NAME, self, is_package=True)
        if not fullname.startswith(NAME + "."):
            return None
        load()
        if fullname in sys.modules:
            return ModuleSpec(fullname, Known())
        return importlib.util.find_spec(fullname)

    def create_module(self, spec):
        return Stub(spec.name)

    def exec_module(self, module):
        pass


finder = Finder()
if os.environ.get("GMEMTOP_TEST_LAZY_DYNAMO"):
    sys.meta_path.insert(0, finder)
