"""Train a little, write a memory snapshot to a given file, and print torch's counts then as a line of JSON."""
import json
import sys

import torch

torch.cuda.memory._record_memory_history(max_entries=100000)
model = torch.nn.Sequential(*[torch.nn.Linear(256, 256) for _ in range(6)]).cuda()
optimizer = torch.optim.AdamW(model.parameters())
for batch in (100, 300, 700, 300):
    optimizer.zero_grad()
    model(torch.randn(batch, 256, device="cuda")).square().mean().backward()
    optimizer.step()
torch.cuda.synchronize()
stats = torch.cuda.memory_stats()
torch.cuda.memory._dump_snapshot(sys.argv[1])
names = ("allocated_bytes", "reserved_bytes", "active_bytes")
print(json.dumps({name: stats[name + ".all.current"] for name in names}
                 | {"peak_" + name: stats[name + ".all.peak"] for name in names}))
