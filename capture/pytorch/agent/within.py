"""A part of the agent: bytes of the device that no tensor of the program shows.

An op takes memory of its own while it runs: a library's workspace (cuBLAS takes 32 MiB on an H100), the
temporaries of a kernel. It takes them from torch's allocator, and no storage of Python stands for them. A
plan that does not know them does not fit.

The allocator counts what it was ever asked for. What that grows by while an op runs, less the storages that
came meanwhile, is what the op took for itself. If it took several blocks they are added up, as if all were
there at once: what is planned with is never too little. What the op keeps, as torch up to 2.11 keeps cuBLAS's
workspace, stays from then on. What the allocator holds when the window begins, less the storages that were
there, is what these steps do not touch: an older workspace, a model that is not in use, or the last step's
logits, which go when the program's variable gets this step's. The looks between ops show when such bytes go.

Two looks at the allocator take 30 microseconds an op, and only where a step is described. Rejected: the
rules by which torch sizes workspaces (they change with torch, card and environment, and no kernel's
temporaries follow them); the peak mark (it is the program's, and resetting it would change what the
program reads).
"""

# of what the steps do not touch, by device: below all addresses that are made up for storages
REST_ADDRESS = 1 << 12


class Within(object):
    """What a window knows of such bytes. Figures are of what was asked for, before the allocator rounds
    it."""

    def __init__(self, torch):
        self.stats, self.held = None, {}  # by device, what the allocator held when the window began
        self.came, self.gone = {}, {}  # by device, bytes of storages that came, and that went, in the window
        # by device, before each of its ops: number of rows, bytes held, bytes that came less those that went
        self.looks = {}
        try:
            if torch.cuda.is_initialized() and torch.cuda.get_allocator_backend() == "native":
                self.stats = torch._C._cuda_memoryStats
                self.held = {"cuda:%d" % k: self.look(k)[1] for k in range(torch.cuda.device_count())}
        except Exception:  # an allocator that counts nothing
            self.stats = None

    def look(self, index):
        """Bytes that a device's allocator was ever asked for, and those that it holds."""
        requested = self.stats(index)["requested_bytes"]["all"]
        return requested["allocated"], requested["current"]

    def add(self, on, size):
        self.came[on] = self.came.get(on, 0) + size

    def remove(self, on, size):
        self.gone[on] = self.gone.get(on, 0) + size

    def before(self, inputs, rows):
        """What is known before an op runs: device, its figures, and what has come; None where it runs on
        none."""
        if self.stats is not None:
            for t in inputs:
                if t.is_cuda:
                    index = t.device.index or 0
                    on = "cuda:%d" % index
                    asked, held = self.look(index)
                    came = self.came.get(on, 0)
                    self.looks.setdefault(on, []).append((rows, held, came - self.gone.get(on, 0)))
                    return on, index, asked, held, came
        return None

    def took(self, was, now):
        """The bytes that an op took for itself, and those of them that it keeps."""
        on, _, asked, held, came = was
        shown = self.came.get(on, 0) - came
        took = now[0] - asked - shown
        return max(took, 0), min(max(now[1] - held - shown, 0), max(took, 0))

    def rest(self, on, there):
        """What was held when the window began and is no storage's, there being the bytes of those that
        were there: the bytes that stay, and a list of pieces that go, with the number of rows before which
        they do."""
        rest, pieces = max(self.held.get(on, 0) - there, 0), []
        for rows, held, net in self.looks.get(on, ()):
            now = max(held - net - there, 0)
            if now < rest:
                pieces.append((rows, rest - now))
                rest = now
        return rest, pieces
