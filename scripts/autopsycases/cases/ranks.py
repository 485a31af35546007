"""Starts a case once for each GPU, as torchrun does: this process is rank 0, and the others end with it."""

import ctypes
import os
import signal
import socket
import subprocess
import sys

import torch
import torch.distributed as dist

PR_SET_PDEATHSIG = 1


def begin(script):
    """Joins the ranks of a script in a process group and returns the rank; the first call starts them."""
    if "RANK" not in os.environ:
        with socket.socket() as s:
            s.bind(("localhost", 0))
            port = s.getsockname()[1]
        ranks = torch.cuda.device_count()
        os.environ |= {"MASTER_ADDR": "localhost", "MASTER_PORT": str(port), "WORLD_SIZE": str(ranks)}
        for rank in range(1, ranks):
            subprocess.Popen(
                [sys.executable, os.path.abspath(script), *sys.argv[1:]],
                env=os.environ | {"RANK": str(rank)},
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        os.environ["RANK"] = "0"
    else:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    rank = int(os.environ["RANK"])
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", device_id=torch.device("cuda", rank))
    return rank
