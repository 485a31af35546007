"""What the agent tells a viewer about its process."""

from __future__ import annotations

import os
import socket
import sys
from typing import TYPE_CHECKING, Any

from .markers import started
from .process import environment_number
from .says import Says, told
from .wire import VERSION

if TYPE_CHECKING:
    from .kinds import Device

MAX_GPUS = 64  # how many are described at most
WAITING = Says("first_step")


def hello(
    torch: Any, device: Device | None, how: str, offloads: bool, room: int, waiting: bool
) -> dict[str, Any]:
    """The payload of a hello. device and room are those of the parameters, how is the way windows are
    captured, and offloads says whether saved tensors wait on the host."""
    rank = environment_number("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK")
    world = environment_number("WORLD_SIZE", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE")
    dist = sys.modules.get("torch.distributed")
    if dist is not None and dist.is_available() and dist.is_initialized():
        rank, world = dist.get_rank(), dist.get_world_size()
    return {
        "version": VERSION,
        "pid": os.getpid(),
        "start": started(),
        "host": socket.gethostname(),
        "argv": list(getattr(sys, "orig_argv", sys.argv))[:64],
        "python": sys.version.split()[0],
        "torch": str(torch.__version__),
        "device": "" if device is None else str(device),
        "rank": rank,
        "local_rank": environment_number("LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK"),
        "world_size": world,
        "capabilities": ["steps", "ops"]
        + (["history"] if device is not None and device.type == "cuda" else [])
        + ["profile", "events", "plans"],
        "depth": how,
        "offloads": offloads,
        "room": max(room, 0),
        "devices": _gpus(torch),
        "waiting": WAITING if waiting else "",
        "says": told(WAITING) if waiting else {},
    }


def _gpus(torch: Any) -> list[dict[str, Any]]:
    """The GPUs that the process sees, for planning; empty before it has used one."""
    try:
        cuda = torch.cuda
        if not cuda.is_initialized():
            return []
        every = [(k, cuda.get_device_properties(k)) for k in range(min(cuda.device_count(), MAX_GPUS))]
        return [{"ordinal": k, "name": p.name, "bytes": p.total_memory} for k, p in every]
    except Exception:  # the device is lost
        return []
