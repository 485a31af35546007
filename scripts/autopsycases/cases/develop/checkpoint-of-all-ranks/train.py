"""Goes on with a language model on two GPUs; each process loads the checkpoint that one has saved."""

import os
import sys
import tempfile

import ranks
import torch
import torch.distributed as dist
import torch.nn.functional as F
from nets import GPT
from torch.nn.parallel import DistributedDataParallel

FIXED = "--fixed" in sys.argv
VOCABULARY, CONTEXT, BATCH = 16_000, 512, 6

rank = ranks.begin(__file__)
model = GPT(VOCABULARY, width=768, layers=8, context=CONTEXT).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
path = os.path.join(tempfile.gettempdir(), f"checkpoint-of-all-ranks-{os.environ['MASTER_PORT']}.pt")
if rank == 0:
    moments = [torch.zeros_like(p) for p in model.parameters()]
    torch.save({"model": model.state_dict(), "exp_avg": moments, "exp_avg_sq": moments.copy()}, path)
    del moments
dist.barrier()
ckpt = torch.load(path, map_location="cpu" if FIXED else None)
model.load_state_dict(ckpt["model"])
for i, p in enumerate(model.parameters()):
    optimizer.state[p] = {
        "step": torch.tensor(1.0),
        "exp_avg": ckpt["exp_avg"][i].to(p.device, copy=True),
        "exp_avg_sq": ckpt["exp_avg_sq"][i].to(p.device, copy=True),
    }
dist.barrier()
if rank == 0:
    os.remove(path)
model = DistributedDataParallel(model, device_ids=[rank])
for step in range(3):
    tokens = torch.randint(VOCABULARY, (BATCH, CONTEXT + 1)).cuda()
    loss = F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if rank == 0:
        print(step, loss.item())
