"""Runs a case as a user would who wants to know why it runs out of memory.

    observe.py FOLDER train.py [--fixed]

The allocator's history is recorded from the start. If the training runs out of memory, FOLDER/snapshot.pickle
has what PyTorch recorded, and the exit status is 3. FOLDER/result.json has the figures of each device, in
bytes: its peaks, and for the one that ran out what it asked for; and of each optimizer's step the peaks by
the time it began and ended, so that what a fix saves can be taken up to the same step.
"""

import json
import os
import re
import runpy
import sys
import traceback

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

SCALE = {"bytes": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


def bytes_of(message, words):
    """Returns the bytes that a message of PyTorch's names after words, or 0."""
    found = re.search(words + r" ([0-9.]+) (bytes|KiB|MiB|GiB)", message)
    return int(float(found[1]) * SCALE[found[2]]) if found else 0


def main():
    folder, script = sys.argv[1:3]
    os.makedirs(folder, exist_ok=True)
    result = {"torch": torch.__version__, "out_of_memory": False}
    failed = []
    began, ended = [], []

    def peaks_into(rows):
        def hook(*_):
            rows.append([torch.cuda.max_memory_allocated(i) for i in range(torch.cuda.device_count())])

        return hook

    register_optimizer_step_pre_hook(peaks_into(began))
    register_optimizer_step_post_hook(peaks_into(ended))

    def observe(device, asked, total, free):
        # The first call only: a retry, or a handler that goes on, must not overwrite what led there.
        if not failed:
            failed.append(
                {"device": device, "asked": asked, "free": free, "began": len(began), "ended": len(ended)}
            )
            torch.cuda.memory._dump_snapshot(os.path.join(folder, "snapshot.pickle"))

    torch.cuda.memory._record_memory_history(max_entries=1_000_000, stacks="python")
    torch._C._cuda_attach_out_of_memory_observer(observe)
    sys.argv = sys.argv[2:]
    status = 0
    try:
        runpy.run_path(os.path.abspath(script), run_name="__main__")  # as python names the script it runs
    except torch.OutOfMemoryError as err:
        traceback.print_exc()
        result.update(out_of_memory=True, message=str(err), tried=bytes_of(str(err), "Tried to allocate"))
        status = 3
    result["failed"] = failed
    result["steps"] = {"began": began, "ended": ended}
    result["devices"] = [
        {
            "peak_allocated": torch.cuda.max_memory_allocated(i),
            "peak_reserved": torch.cuda.max_memory_reserved(i),
            "retries": torch.cuda.memory_stats(i).get("num_alloc_retries", 0),
        }
        for i in range(torch.cuda.device_count())
    ]
    if status == 0:
        torch.cuda.memory._dump_snapshot(os.path.join(folder, "snapshot.pickle"))
    with open(os.path.join(folder, "result.json"), "w") as f:
        json.dump(result, f, indent=1)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)  # other threads and processes of a case end with it


main()
