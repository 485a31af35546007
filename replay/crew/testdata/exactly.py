"""Run a training script, and print what each of its steps computed, to the last bit.

usage: exactly.py SCRIPT [ARGUMENT...]

A step's line is a digest of all parameters, gradients, buffers and optimizer state after it. STEPS in the
environment is how many steps to run; without it, steps run until the file named by STOP exists, and leave
some of the processor to others. While the file named by HOLD exists, no further step begins. With
UNSEEN=1 the last step alone looks at optimizer state.
"""
import gc
import os
import runpy
import sys
import time

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

UNSEEN = bool(os.environ.get("UNSEEN"))
LAST, STOP, HOLD = int(os.environ.get("STEPS", "0")), os.environ.get("STOP", ""), os.environ.get("HOLD", "")
digests, modules = [], []


def digest(t):
    """A sum of a tensor's words, each weighted by an odd number that depends on its position: any single change
    changes the sum."""
    words = t.detach().cpu().contiguous().flatten().view(torch.int32).to(torch.int64)
    return int((words * (2 * torch.arange(words.numel()) + 1)).sum())


def stepped(optimizer, args, kwargs):
    total, last = 0, len(digests) + 1 == LAST or os.path.exists(STOP)
    if not digests:
        modules.extend(o for o in gc.get_objects() if issubclass(type(o), torch.nn.Module))
    for m in modules:  # in any order
        total += sum(digest(t) for t in m._buffers.values() if t is not None)
    for group in optimizer.param_groups:
        for p in group["params"]:
            state = [t for _, t in sorted(optimizer.state[p].items()) if isinstance(t, torch.Tensor)]
            state = [] if UNSEEN and not last else state
            for t in [p, p.grad] + state:
                total = (total * 1000003 + (digest(t) if t is not None else 7)) % (1 << 61)
    digests.append(total)
    while os.path.exists(HOLD):
        time.sleep(0.01)
    if not LAST:
        time.sleep(0.02)  # the pace of a step
    if last:
        for n, d in enumerate(digests):
            print("digest %d %x" % (n, d))
        raise SystemExit(0)


register_optimizer_step_post_hook(stepped)
sys.argv = sys.argv[1:]
sys.path.insert(0, os.path.dirname(sys.argv[0]))
runpy.run_path(sys.argv[0], run_name="__main__")
