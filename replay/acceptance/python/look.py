"""Print what torch knows about the GPU in CUDA_VISIBLE_DEVICES, as one line of JSON."""
import json
import platform

import torch

found = {"version": str(torch.__version__), "cuda": str(torch.version.cuda or ""),
         "python": platform.python_version(), "available": torch.cuda.is_available(),
         "limit": hasattr(torch.cuda, "get_per_process_memory_fraction")}
if found["available"]:
    free, total = torch.cuda.mem_get_info(0)
    found.update(name=torch.cuda.get_device_name(0), total=total, free=free, count=torch.cuda.device_count())
print(json.dumps(found))
