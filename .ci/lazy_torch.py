"""Lets the tests' trainings start without what they never use of PyTorch: a third to two thirds of the time.

.ci/run starts hundreds of Pythons and does little else, so these are put off until something needs them:

- torch._dynamo, the compiler. torch.optim imports it at the first step, though nothing is compiled, only to
  call two functions that do nothing then. DistributedDataParallel, checkpointing and fake tensors import it
  for one setting. Any other use imports it as usual.
- torch._meta_registrations, Python functions for ops on tensors without data, with torch._refs and
  torch._decomp, which it imports. The first FakeTensorMode imports them, and so does the first access to one
  of these modules. A program that computes with meta tensors outside such a mode fails here, with
  NotImplementedError.
- the garbage collector, while torch is imported.

.ci/run installs this file into its own virtual environment, with a .pth file that imports it at startup. It
does nothing unless the variable below is set. `make standin` and `scripts/test.sh` do not set it: trainings
there use an unmodified torch.
"""

import atexit
import gc
import importlib
import importlib.util
import os
import sys
import time
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

NAME = "torch._dynamo"
CONFIG = NAME + ".config"  # its settings: a module that needs nothing else of the compiler
META = "torch._meta_registrations"


def load():
    """Puts the real compiler in the place of the stub, and returns it."""
    if finder in sys.meta_path:
        sys.meta_path.remove(finder)
    if isinstance(sys.modules.get(NAME), Stub):
        del sys.modules[NAME]
    if isinstance(sys.modules.get(META), NoMeta):
        load_meta()
    real = importlib.import_module(NAME)
    if CONFIG in sys.modules:
        real.config = sys.modules[CONFIG]
    return real


class Part:
    """A module of torch._dynamo: what can be answered without the compiler, and else the module itself."""

    def __init__(self, name, **answers):
        self.__dict__.update(answers, _name=name)

    def __getattr__(self, name):
        return getattr(getattr(load(), self._name), name)


def get_optimize_ddp_mode():
    """What DistributedDataParallel asks: the setting, where true and false are names of modes."""
    mode = importlib.import_module(CONFIG).optimize_ddp
    return {True: "ddp_optimizer", False: "no_optimization"}.get(mode, mode)


class Stub(ModuleType):
    """torch._dynamo until something is asked of it that needs the compiler."""

    __path__ = ()  # a package: its modules are looked for, and Finder hears of it

    @staticmethod
    def disable(fn, recursive=True, *, reason=None, wrapping=True):
        return fn

    @staticmethod
    def graph_break(msg=""):
        pass

    utils = Part("utils", get_optimize_ddp_mode=get_optimize_ddp_mode)
    trace_rules = Part("trace_rules", clear_lru_cache=lambda: None)  # nothing was traced, so nothing is kept

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        if name == "config":
            return importlib.import_module(CONFIG)
        return getattr(load(), name)


class Known(Loader):
    """Gives a module that the import of torch._dynamo has imported already."""

    def create_module(self, spec):
        return sys.modules[spec.name]

    def exec_module(self, module):
        pass


class WithoutCollecting(Loader):
    """Imports torch while the garbage collector rests: almost all that an import makes stays."""

    def __init__(self, loader):
        self.loader = loader

    def create_module(self, spec):
        return self.loader.create_module(spec)

    def exec_module(self, module):
        collected = gc.isenabled()
        gc.disable()
        try:
            self.loader.exec_module(module)
        finally:
            if collected:
                gc.enable()
        importlib.import_module("torch._prims")  # torch.Generator cannot be called before
        for name in "_refs", "_decomp":
            if not hasattr(module, name):
                setattr(module, name, Later("torch." + name))
        meta_before_fake_tensors()

    def __getattr__(self, name):
        return getattr(self.loader, name)


def load_meta():
    """Imports the real torch._meta_registrations in the place of the stub, and returns it."""
    name = META
    if isinstance(sys.modules.get(name), NoMeta):
        del sys.modules[name]
    real = importlib.import_module(name)
    sys.modules["torch"]._meta_registrations = real
    return real


def meta_before_fake_tensors():
    """Lets the first FakeTensorMode import what it needs to compute shapes."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    begin = FakeTensorMode.__init__

    def __init__(self, *args, **options):
        FakeTensorMode.__init__ = begin
        load_meta()
        begin(self, *args, **options)

    FakeTensorMode.__init__ = __init__


class Later(ModuleType):
    """A module that is imported on its first access. The import puts the real one in its place."""

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(importlib.import_module(self.__name__), name)


class NoMeta(ModuleType):
    """torch._meta_registrations until its first access."""

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(load_meta(), name)


class Finder(MetaPathFinder):
    def find_spec(self, fullname, path=None, target=None):
        if fullname == "torch":
            spec = PathFinder.find_spec(fullname, path, target)
            if spec is not None and spec.loader is not None:
                spec.loader = WithoutCollecting(spec.loader)
            return spec
        if fullname == META and "torch._C" in sys.modules and META not in seen:
            seen.add(META)
            return ModuleSpec(fullname, self)
        if fullname == NAME:
            return ModuleSpec(NAME, self, is_package=True)
        if not fullname.startswith(NAME + "."):
            return None
        if fullname == CONFIG:
            torch = sys.modules["torch"]
            return PathFinder.find_spec(fullname, [os.path.join(torch.__path__[0], "_dynamo")])
        load()
        if fullname in sys.modules:
            return ModuleSpec(fullname, Known())
        return importlib.util.find_spec(fullname)

    def create_module(self, spec):
        return NoMeta(spec.name) if spec.name == META else Stub(spec.name)

    def exec_module(self, module):
        pass


def let_autograd_rest():
    """Waits a moment before Python ends, if a GPU was used. The engine's thread for that GPU may still
    want the lock of an interpreter that is gone, and then ends the process with SIGABRT. A program with
    all of torch takes long enough to end; one without these parts does not."""
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    if cuda is not None and cuda.is_initialized():
        time.sleep(0.25)


seen = set()  # modules that a stub stood for once
finder = Finder()
if os.environ.get("GMEMTOP_TEST_LAZY_TORCH"):
    sys.meta_path.insert(0, finder)
    atexit.register(let_autograd_rest)
