"""What ops take on a device by its figures. Nothing is timed: the same script gives the same times."""


class Clock(object):
    """A clock that only ops put forward."""

    def __init__(self):
        self.now = 0

    def __call__(self):
        return self.now


class Pace(object):
    """The time of ops on one device: their arithmetic or their traffic, whichever is more, and the launch."""

    def __init__(self, torch, device, note):
        from torch.utils import flop_counter

        self.device, self.note, self.formulas = device, note, flop_counter.flop_registry
        self.halves = torch.float16, torch.bfloat16

    def flops(self, func):
        """The formula of an op's arithmetic, None for one that has none."""
        return self.formulas.get(func._overloadpacket)

    def nanoseconds(self, func, flops, args, kwargs, out, tensors):
        """The time of an op that was called with these. tensors are those that it read and made."""
        device, nbytes, half = self.device, 0, False
        for t in tensors:
            try:
                nbytes += t.numel() * t.element_size()
                half = half or t.dtype in self.halves
            except RuntimeError:
                pass
        seconds = nbytes / device["bytes_per_second"] if device["bytes_per_second"] > 0 else 0
        if flops is not None and device["flops_per_second"] > 0:
            try:
                rate = device["flops_per_second"] * (2 if half and device["flops_type"] == "tf32" else 1)
                seconds = max(seconds, flops(*args, **kwargs, out_val=out) / rate)
            except Exception:
                name = func._schema.name
                self.note("the arithmetic of %s is not known: its time is its traffic's" % name)
        return int(seconds * 1e9) + device["launch_ns"]
