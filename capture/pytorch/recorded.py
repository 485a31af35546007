"""Part three of the agent: stretches that torch records itself, for what a description op by op cannot show.

Under a dispatch mode the code that torch.compile made would run as eager ops: a description would be of something else than what trains.
Who takes memory and who gives it back can be had all the same: on a GPU the caching allocator keeps a history, with Python's stacks; on a
CPU torch's profiler reports each allocation with the op that it is made in. Neither says who uses what.
"""
import inspect
import pickle
import tempfile

HISTORY_ENTRIES = 200000
LOG_LEVEL = "KINETO_LOG_LEVEL"


class Recorded(object):
    """What a window is to the rest of the agent, where torch does the watching."""

    rooting = False  # set by who sees backward() called; only a description asks
    bound = False  # whether only the thread that began it can end it

    def __init__(self, torch, now, library, device):
        self.torch, self.start, self.steps, self.cost, self.stopped, self.lost, self.graphs = torch, now, [], 0, False, 0, 0
        self.library, self.device = library, device

    def on_top(self):
        return True

    settled = leave = on_top

    def entering_optimizer(self, optimizer):
        pass

    leaving_optimizer = look = entering_optimizer


class History(Recorded):
    """A window of the caching allocator's own history."""

    on, taken = False, None  # whether the allocator records; the snapshot, once there is one

    def begin(self):
        record = self.torch.cuda.memory._record_memory_history
        wanted = {"enabled": "all", "context": "alloc", "stacks": "python", "max_entries": HISTORY_ENTRIES,
                  "global_record_annotations": True}  # torch's note of a thread can be taken back by that thread alone, and it is the sending one that ends this
        known = inspect.signature(record).parameters
        self.on = True
        record(**{k: v for k, v in wanted.items() if k in known})

    def end(self):
        pass  # the sending thread takes the snapshot, unless take is called before, and ends it then

    def unhook(self):
        if self.on:
            self.on = False
            self.torch.cuda.memory._record_memory_history(enabled=None)

    def take(self):
        self.taken = self.torch.cuda.memory._snapshot()
        self.unhook()

    def chunks(self):
        begin = time.perf_counter_ns()
        if self.taken is None:
            self.take()
        snapshot, self.taken = self.taken, None
        self.pools.count(snapshot["segments"], self.device.index or 0)
        settings = snapshot.setdefault("allocator_settings", {})
        for key, value in _rules(self.torch).items():
            settings.setdefault(key, value)
        whole = pickle.dumps(snapshot, protocol=4)
        self.cost += time.perf_counter_ns() - begin
        for at in range(0, len(whole), 1 << 20):
            yield whole[at:at + (1 << 20)]


def _rules(torch):
    """What the allocator's decisions depend on: its settings in the environment, torch's release, and of each
    device its size and the share of it that the program may have."""
    try:
        cuda, devices = torch.cuda, {}
        major, minor = str(torch.__version__).split(".")[:2]
        for i in range(cuda.device_count()):
            devices[str(i)] = {"total_bytes": int(cuda.get_device_properties(i).total_memory)}
            if hasattr(cuda, "get_per_process_memory_fraction"):  # older releases do not tell it
                devices[str(i)]["memory_fraction"] = float(cuda.get_per_process_memory_fraction(i))
        confs = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")
        rules = {name: os.environ[name] for name in confs if name in os.environ}
        return dict(rules, gmemtop_torch=[int(major), int(minor)], gmemtop_devices=devices)
    except Exception:
        return {}  # the recording is worth having without


class Profile(Recorded):
    """A window of torch's profiler. What it needs for good is torch's own: from the first on, one idle thread."""

    bound = True
    runs = False

    def begin(self):
        from torch.profiler import ProfilerActivity, profile

        self.profile, self.runs = profile(activities=[ProfilerActivity.CPU], profile_memory=True), True
        ours = LOG_LEVEL not in os.environ
        if ours:
            os.environ[LOG_LEVEL] = "99"  # or it would tell the program's standard error about itself
        try:
            self.profile.start()
        finally:
            if ours:
                del os.environ[LOG_LEVEL]

    def end(self):
        if self.runs:
            self.runs = False
            self.profile.stop()

    def leave(self):
        self.end()
        return True

    def unhook(self):
        pass  # a profiler ends on the thread that began it

    def chunks(self):
        handle, path = tempfile.mkstemp(prefix="gmemtop-", suffix=".json")
        try:
            os.close(handle)
            begin = time.perf_counter_ns()
            self.profile.export_chrome_trace(path)
            self.cost += time.perf_counter_ns() - begin
            self.profile = None
            with open(path, "rb") as f:
                os.unlink(path)
                path = ""
                for data in iter(lambda: f.read(1 << 20), b""):
                    yield data
        finally:
            if path:
                os.unlink(path)


RECORDED = {"history": History, "profile": Profile}
