"""Run out of a given amount of memory, in MiB, write torch's snapshot to a given file, and print torch's
message."""
import sys

import torch

torch.cuda.memory._record_memory_history(max_entries=100000)
limit = int(sys.argv[2]) * 2**20
torch.cuda.set_per_process_memory_fraction(limit / torch.cuda.get_device_properties(0).total_memory)
width = 2048 if limit >= 2**30 else 256
model = torch.nn.Sequential(*[torch.nn.Linear(width, width) for _ in range(8)]).cuda()
optimizer = torch.optim.AdamW(model.parameters())
try:
    for i in range(16):  # each step takes twice the batch of the one before
        x = torch.randn(512 << i, width, device="cuda")
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
except torch.cuda.OutOfMemoryError as e:
    torch.cuda.memory._dump_snapshot(sys.argv[1])
    print(str(e).splitlines()[0])
else:
    sys.exit("it did not run out of memory")
