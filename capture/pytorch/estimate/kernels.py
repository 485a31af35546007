"""Triton kernels that a script or a library launches itself: we neither compile nor launch them. Their
arguments are tensors that are already allocated, and a launch allocates nothing.

Triton's driver answers questions about the card, which libraries ask to choose sizes of blocks. It loads
CUDA's library and compiles a module of its own, so we answer in its place from what torch.cuda says.

Source: triton/runtime/jit.py, KernelInterface.__getitem__; triton/runtime/driver.py;
triton/backends/nvidia/driver.py. The shared memory of a block: the CUDA Programming Guide, compute
capabilities.
"""

import sys

from .training import tensors_in

SHARED = {(7, 0): 96, (7, 5): 64, (8, 0): 163, (8, 7): 163, (9, 0): 227, (10, 0): 227}  # KiB of a block
SHARED_ELSEWHERE = 99


def leave_triton_out(run, overwritten):
    """Make Triton's kernels do nothing, once triton is imported. overwritten is called with each tensor that
    one may have written to."""

    def no_launch(kernel, grid):
        def launch(*args, **kwargs):
            run.note_at("Triton's kernels were not compiled and not run", run.line())
            for t in tensors_in(run.torch, args, kwargs):
                if t.device.type == "cuda":
                    overwritten(t)

        return launch

    def leave_out(jit):
        jit.KernelInterface.__getitem__ = no_launch

    def drive(driver):
        if hasattr(driver, "_create_driver"):
            driver._create_driver = lambda: _Card(run.torch)

    after_import("triton.runtime.jit", leave_out)
    after_import("triton.runtime.driver", drive)


class _Card:
    """What Triton's driver says about the card."""

    def __init__(self, torch):
        self.torch, self.utils = torch, self
        self.get_device_capability = torch.cuda.get_device_capability
        self.get_current_device, self.set_current_device = torch.cuda.current_device, torch.cuda.set_device

    def is_active(self):
        return True

    def get_current_stream(self, device=None):
        return 0

    def get_current_target(self):
        from triton.backends.compiler import GPUTarget

        major, minor = self.get_device_capability()
        return GPUTarget("cuda", 10 * major + minor, 32)

    def get_active_torch_device(self):
        return self.torch.device("cuda", self.get_current_device())

    def get_device_interface(self):
        return self.torch.cuda

    def get_device_properties(self, device):
        card = self.torch.cuda.get_device_properties(device)
        return {
            "max_shared_mem": SHARED.get((card.major, card.minor), SHARED_ELSEWHERE) << 10,
            "max_num_regs": 65536,
            "multiprocessor_count": card.multi_processor_count,
            "warpSize": 32,
        }


def after_import(name, act):
    """Call a function with a module: at once if it has been imported, otherwise as soon as it is. Never if it
    is being imported now, and torch with it."""
    if name in sys.modules:
        if not getattr(sys.modules[name].__spec__, "_initializing", False):
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
