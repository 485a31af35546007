"""How long ops take on a device, from its figures. Nothing is timed: the same script gives the same times."""


class Clock:
    """A clock that only ops advance."""

    def __init__(self):
        self.now = 0

    def __call__(self):
        return self.now


class Pace:
    """The time of ops on one device: arithmetic or memory traffic, whichever takes longer, plus the
    launch."""

    def __init__(self, torch, device, note):
        from torch.utils import flop_counter

        self.device, self.note, self.formulas = device, note, flop_counter.flop_registry
        self.halves = torch.float16, torch.bfloat16

    def flops(self, func):
        """The formula for an op's arithmetic, None if there is none."""
        return self.formulas.get(func._overloadpacket)

    def nanoseconds(self, func, flops, args, kwargs, out, tensors):
        """The time of a call of an op. tensors are the ones that it read and made."""
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
