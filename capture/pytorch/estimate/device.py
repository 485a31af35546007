"""A CUDA device that does not exist, as torch.cuda and torch.accelerator describe it."""

import sys
import types

from .training import Unsupported, scale_without_infinities


def _nothing(*args, **kwargs):
    pass


def _own(answer):
    """A function for one name alone: torch._dynamo, imported after this, refuses one that has two names."""
    if isinstance(answer, type):
        return answer
    return lambda *args, **kwargs: answer(*args, **kwargs)


class _Nothing:
    """A stream, an event, a graph capture or a device scope that accepts any call and does nothing."""

    cuda_stream = stream_id = device_index = priority = 0
    device_type = 1  # CUDA's

    def __init__(self, *args, **kwargs):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *args):
        return False

    def __call__(self, f):
        return f

    def query(self):
        return True

    def elapsed_time(self, other):
        return 1.0

    def record_event(self, event=None):
        return event or _Nothing()

    def record(self, stream=None):
        pass

    synchronize = wait = wait_event = wait_stream = record

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return _nothing


def _cuda(run):
    """Pretend one CUDA device."""
    torch, device, within = run.torch, run.config["device"], run.recorder.within
    cuda = torch.cuda
    major, minor = device["capability"]
    properties = types.SimpleNamespace(
        name=device["name"],
        total_memory=device["memory_bytes"],
        major=major,
        minor=minor,
        multi_processor_count=device["processors"],
        is_integrated=False,
        is_multi_gpu_board=False,
        gcnArchName="",
        warp_size=32,
        max_threads_per_multi_processor=2048,
        regs_per_multiprocessor=65536,
    )

    def figures(*args, **kwargs):
        """torch.cuda.memory_stats: we know what is allocated, but not what is cached."""
        out = {}
        for unit in ("allocated", "active", "reserved", "requested"):
            for pool in ("all", "large_pool", "small_pool"):
                out["%s_bytes.%s.current" % (unit, pool)] = within.bytes
                out["%s_bytes.%s.peak" % (unit, pool)] = within.peak
        out["num_alloc_retries"] = out["num_ooms"] = 0
        return out

    def reset(*args, **kwargs):
        within.peak = within.bytes

    def state(*args, **kwargs):
        with run.without():
            return torch.zeros(16, dtype=torch.uint8)

    nothing = _nothing
    held, peak = (lambda *args, **kwargs: within.bytes), (lambda *args, **kwargs: within.peak)
    total = device["memory_bytes"]
    answers = {
        "is_available": lambda: True,
        "is_initialized": lambda: True,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "initial_seed": lambda: 0,
        "get_device_name": lambda *a: device["name"],
        "get_device_capability": lambda *a: (major, minor),
        "get_device_properties": lambda *a: properties,
        "is_bf16_supported": lambda *a, **k: major >= 8,
        "is_tf32_supported": lambda *a, **k: major >= 8,
        "get_arch_list": lambda: ["sm_%d%d" % (major, minor)],
        "can_device_access_peer": lambda *a: False,
        "is_current_stream_capturing": lambda: False,
        "_is_in_bad_fork": lambda: False,
        "mem_get_info": lambda *a: (max(total - within.bytes, 0), total),
        "memory_stats": figures,
        "memory_summary": lambda *a, **k: "",
        "memory_snapshot": lambda *a, **k: [],
        "utilization": lambda *a: 0,
        "memory_usage": lambda *a: 0,
        "get_rng_state": state,
        "get_rng_state_all": lambda: [state()],
        "current_stream": lambda *a: _Nothing(),
        "default_stream": lambda *a: _Nothing(),
        "_exchange_device": lambda *a: 0,
        "_maybe_exchange_device": lambda *a: 0,
    }
    for what, value in {"memory_allocated": held, "memory_reserved": held, "memory_cached": held}.items():
        answers[what], answers["max_" + what] = value, peak
    for name in ("reset_peak_memory_stats", "reset_max_memory_allocated"):
        answers[name] = reset
    for name in (
        "Stream",
        "Event",
        "ExternalStream",
        "stream",
        "StreamContext",
        "device",
        "device_of",
        "_DeviceGuard",
    ):
        answers[name] = _Nothing
    for name in (
        "set_device",
        "synchronize",
        "ipc_collect",
        "init",
        "_lazy_init",
        "_lazy_call",
        "manual_seed",
        "manual_seed_all",
        "seed",
        "seed_all",
        "set_rng_state",
        "set_rng_state_all",
        "set_per_process_memory_fraction",
        "set_stream",
        "set_sync_debug_mode",
        "reset_accumulated_memory_stats",
    ):
        answers[name] = nothing
    answers["empty_cache"] = lambda *a: run.recorder.empties()
    for name, value in answers.items():
        value = _own(value)
        if hasattr(cuda, name):
            setattr(cuda, name, value)
        for module in (
            getattr(cuda, "memory", None),
            getattr(cuda, "random", None),
            getattr(cuda, "streams", None),
        ):
            if module is not None and name in module.__dict__:
                setattr(module, name, value)
    memory = getattr(cuda, "memory", None)
    if memory is not None:
        memory._record_memory_history, memory._dump_snapshot = _own(nothing), _own(nothing)
        memory._snapshot = lambda *a, **k: {"segments": [], "device_traces": []}
    for name in ("range_push", "range_pop", "mark", "range_start", "range_end"):
        if hasattr(cuda.nvtx, name):
            setattr(cuda.nvtx, name, _own(nothing))
    cuda.nvtx.range = _Nothing

    class NoGraph:
        def __init__(self, *args, **kwargs):
            raise Unsupported("the script captures CUDA graphs, which only a device can")

        replay = None

    cuda.CUDAGraph = cuda.graph = cuda.make_graphed_callables = NoGraph
    torch.backends.cudnn.is_available, torch.backends.cudnn.is_acceptable = (lambda: True), (lambda t: False)
    torch.backends.cudnn.version = lambda: 90000
    if hasattr(torch._C, "_get_accelerator"):
        torch._C._get_accelerator = lambda *args: torch.device("cuda")
    accelerator = getattr(torch, "accelerator", None)
    if accelerator is not None:
        same = (
            "is_available",
            "device_count",
            "synchronize",
            "current_stream",
            "memory_allocated",
            "memory_reserved",
            "max_memory_allocated",
            "max_memory_reserved",
            "empty_cache",
            "reset_peak_memory_stats",
            "memory_stats",
        )
        others = {
            "current_accelerator": lambda *a, **k: torch.device("cuda"),
            "current_device_index": lambda: 0,
            "current_device_idx": lambda: 0,
            "set_device_index": nothing,
            "set_device_idx": nothing,
            "set_stream": nothing,
            "device_index": _Nothing,
        }
        for name, value in dict(others, **{name: answers[name] for name in same}).items():
            if hasattr(accelerator, name):
                setattr(accelerator, name, _own(value))

    real = torch.Generator

    class Generator(real):
        def __new__(cls, device="cpu"):
            return real.__new__(cls, device="cpu")

    torch.Generator = Generator
    torch.Tensor.record_stream = lambda t, stream: None
    scalers = sys.modules.get("torch.amp.grad_scaler")
    if scalers is None:
        import torch.cuda.amp.grad_scaler as scalers
    scale_without_infinities(scalers.GradScaler)
