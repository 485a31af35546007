"""Train. When FOLDER/bootstrap appears, run its code as an attaching program would. While FOLDER/pause is
there, stay in the middle of a backward pass. When FOLDER/detached appears, print how the process differs from
before, and what was learnt.

usage: residue.py FOLDER [USER]

With a user's number, it first becomes that user. DEVICE in the environment names the device if it is not the
CPU.
"""
import gc
import hashlib
import json
import os
import signal
import sys
import threading
import time

import torch
import torch.multiprocessing
from multiprocessing import util

try:
    from torch.amp import grad_scaler as scalers
except ImportError:  # before torch 2.3
    from torch.cuda.amp import grad_scaler as scalers

folder, device = sys.argv[1], os.environ.get("DEVICE", "cpu")
torch.set_num_threads(1)


def network():
    return torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.GELU(), torch.nn.Linear(64, 64),
                               torch.nn.Tanh(), torch.nn.Linear(64, 1)).to(device)


torch.manual_seed(1)
model = network()
optimizer = torch.optim.Adam(model.parameters())


def leaves():
    """Whether an agent in this process has heard that it is to leave."""
    agents = [o for o in gc.get_objects() if type(o).__name__ == "Agent" and hasattr(o, "wishes")]
    return any(agent.wishes.leaving for agent in agents)


def pause(grad):
    paused = os.path.join(folder, "pause")
    heard = not os.path.exists(paused)
    if not heard:
        print("paused", flush=True)
    while os.path.exists(paused) and time.monotonic() < late:
        if not heard and leaves():
            heard = True
            print("leaves", flush=True)
        time.sleep(0.01)


late = time.monotonic() + 600  # the test may have died by then
model[2].weight.register_hook(pause)


def step():
    optimizer.zero_grad()
    loss = model(torch.randn(2048, 32, device=device)).square().mean()
    loss.backward()
    optimizer.step()
    return loss.item()


def bits():
    """Parameters, gradients and the optimizer's state, as bytes."""
    state = [t for p in model.parameters() for _, t in sorted(optimizer.state[p].items())
             if isinstance(t, torch.Tensor)]
    tensors = [*model.parameters(), *(p.grad for p in model.parameters()), *state]
    return [t.detach().cpu().contiguous().numpy().tobytes() for t in tensors]


def of_gpu():
    """What is allocated on the GPU and pinned for it, and whether torch's allocator keeps a history."""
    if device == "cpu":
        return []
    torch.cuda.synchronize()
    torch.empty(1, pin_memory=True)  # torch reclaims pinned memory of finished copies on the next request
    return [torch.cuda.memory_stats()["requested_bytes.all.current"],
            torch.cuda.host_memory_stats()["active_bytes.current"], torch._C._cuda_isHistoryEnabled()]


def running():
    """The threads, as Python lists them and as the kernel counts them."""
    return sorted(t.name for t in threading.enumerate()) + [str(len(os.listdir("/proc/self/task")))]


def state():
    for _ in range(3):
        gc.collect()
    from torch.nn.modules import module
    from torch.optim import optimizer as hooks

    fds = {}
    for n in os.listdir("/proc/self/fd"):
        try:
            fds[n] = os.readlink("/proc/self/fd/" + n)
        except OSError:
            pass  # the listing's own
    return {
        "threads": running(),
        "fds": fds,
        "modules": sorted(sys.modules),
        "meta_path": [repr(f) for f in sys.meta_path],
        "path": list(sys.path),
        "optimizer hooks": [len(hooks._global_optimizer_pre_hooks), len(hooks._global_optimizer_post_hooks)],
        "module hooks": [len(module._global_forward_pre_hooks), len(module._global_forward_hooks),
                         len(module._global_forward_hooks_always_called)],
        "functions": [repr(f) for f in (torch.autograd.backward, scalers.GradScaler.update,
                                        torch.UntypedStorage.resize_)],
        "storage class": sorted(torch.UntypedStorage.__dict__),
        "memory of the GPU": of_gpu(),
        "modes": torch._C._len_torch_dispatch_stack(),
        "finalizers": len(util._finalizer_registry),
        "after fork": len(util._afterfork_registry),
        "signals": [repr(signal.getsignal(s)) for s in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)],
        "environment": sorted(os.environ),
        "functions of the agent": sum(1 for o in gc.get_objects()
                                      if getattr(o, "__module__", None) == "gmemtop_agent"),
        "builtins": sorted(__builtins__.__dict__),
        "last error": hasattr(sys, "last_value"),
    }


losses = [step() for _ in range(5)]
if len(sys.argv) > 2:
    os.setgroups([])
    os.setgid(int(sys.argv[2]))
    os.setuid(int(sys.argv[2]))
before = state()
print("ready", flush=True)
watched = False
while time.monotonic() < late:
    losses.append(step())
    if not watched and os.path.exists(os.path.join(folder, "bootstrap")):
        watched = True
        with open(os.path.join(folder, "bootstrap")) as f:
            exec(f.read(), {"__name__": "gmemtop_agent"})
    if os.path.exists(os.path.join(folder, "detached")):
        break
    time.sleep(0.01)
late = time.monotonic() + 60
while running() != before["threads"] and time.monotonic() < late:  # the agent's thread ends after its goodbye
    losses.append(step())
    time.sleep(0.01)
after = state()
for name in before:
    if before[name] != after[name]:
        print("differs:", name, "before", json.dumps(before[name])[:2000], "after",
              json.dumps(after[name])[:2000])
learnt = losses, bits()
torch.manual_seed(9)
for _ in range(3):
    step()
print("steps", len(losses), flush=True)

# The same steps again, in a process that was watched before, must learn the same.
torch.manual_seed(1)
again = network()
optimizer = torch.optim.Adam(again.parameters())
model = again
same = [step() for _ in losses]
print("same" if (same, bits()) == learnt else "different",
      hashlib.sha256(repr(losses).encode()).hexdigest(), flush=True)
