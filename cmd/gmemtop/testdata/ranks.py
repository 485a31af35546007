"""Train on a GPU a rank, by DDP or FSDP2 over NCCL, and print what each rank learned, to the last bit.

usage: torchrun ... ranks.py ddp|fsdp STEPS

While there is a file that HOLD names, no further step begins.
"""
import hashlib
import os
import sys
import time

import torch
import torch.distributed as dist

wrap, steps, rank = sys.argv[1], int(sys.argv[2]), int(os.environ["LOCAL_RANK"])
hold, pace = os.environ.get("HOLD", ""), float(os.environ.get("PACE", "0"))
torch.cuda.set_device(rank)
dist.init_process_group("nccl", device_id=torch.device("cuda", rank))
torch.manual_seed(0)
layers = [torch.nn.Linear(64, 64) for _ in range(4)]
net = torch.nn.Sequential(*[m for layer in layers for m in (layer, torch.nn.Sigmoid())]).cuda()
if wrap == "ddp":
    net = torch.nn.parallel.DistributedDataParallel(net, device_ids=[rank], gradient_as_bucket_view=True)
else:
    from torch.distributed.fsdp import fully_shard

    for layer in layers:
        fully_shard(layer)
    fully_shard(net)
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
torch.manual_seed(rank + 1)  # each rank has data of its own
losses = []
for step in range(steps):
    while os.path.exists(hold):
        time.sleep(0.01)
    time.sleep(pace)  # of a step
    optimizer.zero_grad()
    loss = net(torch.randn(512, 64).cuda()).square().mean()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())

digest = hashlib.sha256()
state = [t for p in net.parameters() for _, t in sorted(optimizer.state[p].items())
         if isinstance(t, torch.Tensor)]
for t in list(net.parameters()) + [p.grad for p in net.parameters()] + state:
    local = getattr(t, "_local_tensor", t).detach().cpu().contiguous()
    digest.update(local.view(-1).view(torch.uint8).numpy().tobytes())
# A line in one piece: the ranks write to one file.
os.write(1, ("losses %d %s\ndigest %d %s\n" % (rank, " ".join(x.hex() for x in losses), rank,
                                               digest.hexdigest())).encode())
dist.destroy_process_group()
