"""Uses torch.distributed over NCCL on a number of ranks: prints "same" lines that must not depend on the
order of work.

Started by torchrun, or by itself with RANKS=N: then it starts its ranks itself, without torchrun's agent and
its import of torch.
"""
import hashlib, os, socket, subprocess, sys

if "RANK" not in os.environ:
    with socket.socket() as s:
        s.bind(("localhost", 0))
        shared = {"MASTER_ADDR": "localhost", "MASTER_PORT": str(s.getsockname()[1]), "WORLD_SIZE": os.environ["RANKS"]}
    started = [subprocess.Popen([sys.executable, *sys.argv], env=os.environ | shared | {"RANK": str(r), "LOCAL_RANK": str(r)})
               for r in range(int(os.environ["RANKS"]))]
    sys.exit(max(p.wait() != 0 for p in started))

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
device = torch.device("cuda", int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
torch.cuda.set_device(device)
parts = sys.argv[1:]


def digest(name, tensors):
    h = hashlib.sha256()
    for t in tensors:
        h.update(t.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes())
    if rank == 0:
        os.write(1, f"same {name} {h.hexdigest()[:16]}\n".encode())


def expect(name, got, want):
    if not torch.equal(got.cpu(), want):
        raise SystemExit(f"rank {rank}: {name}: {got.cpu()} where {want} was expected")


def collectives():
    # Ops do not compute here, so tensors are made on the CPU.
    # Odd sizes, and more than the 2 MiB that ranks show each other in a round.
    for dtype in (torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.int64, torch.int32, torch.uint8):
        n = 1_500_001 if dtype == torch.float32 else 1001
        all_ranks = [(torch.arange(n) % 7 + k + 1).to(dtype) for k in range(ranks)]
        for op, want in ((dist.ReduceOp.SUM, sum(all_ranks[1:], all_ranks[0].clone())), (dist.ReduceOp.MAX, all_ranks[-1]), (dist.ReduceOp.MIN, all_ranks[0])):
            x = all_ranks[rank].to(device)
            dist.all_reduce(x, op=op)
            expect(f"all_reduce {op} {dtype}", x, want)
    # Small types are added in float and rounded once, with subnormals, infinities and NaN; eight bits within their range.
    for dtype, scale in ((torch.bfloat16, 1e-3), (torch.float16, 1e-6), (torch.float8_e4m3fn, 1.0), (torch.float8_e5m2, 1e-3)):
        all_ranks = [(torch.randn(4001, generator=torch.Generator().manual_seed(k)) * scale).to(dtype) for k in range(ranks)]
        if scale < 1:
            all_ranks[0][:2] = torch.tensor([float("inf"), float("nan")]).to(dtype)
        x = all_ranks[rank].to(device)
        try:
            dist.all_reduce(x)
        except RuntimeError as e:
            if dtype.itemsize == 1 and "Float8" in str(e):
                continue  # older releases of torch refuse to add eight bits
            raise
        total = sum((t.float() for t in all_ranks[1:]), all_ranks[0].float()).to(dtype)
        bits = torch.int16 if dtype.itemsize == 2 else torch.uint8
        got = x.cpu()
        expect(f"NaN of {dtype}", got.isnan(), total.isnan())
        expect(f"rounded sum of {dtype}", torch.where(total.isnan(), 0, got.view(bits)), torch.where(total.isnan(), 0, total.view(bits)))
    x = torch.full((5,), float(rank + 1)).to(device)
    dist.all_reduce(x, op=dist.ReduceOp.AVG)
    expect("average", x, torch.full((5,), (ranks + 1) / 2))
    x = torch.full((5,), float(rank + 1)).to(device)
    dist.all_reduce(x, op=dist._make_nccl_premul_sum(0.5))
    expect("sum with a factor", x, torch.full((5,), ranks * (ranks + 1) / 4))
    x = torch.full((5,), float(rank + 1)).to(device)
    dist.all_reduce(x, op=dist._make_nccl_premul_sum(torch.full((1,), 0.25).to(device)))
    expect("sum with a factor in device memory", x, torch.full((5,), ranks * (ranks + 1) / 8))
    x = torch.full((3,), float(rank)).to(device)
    dist.broadcast(x, src=ranks - 1)
    expect("broadcast", x, torch.full((3,), float(ranks - 1)))
    x = torch.full((3,), float(rank)).to(device)
    dist.reduce(x, dst=0)
    if rank == 0:
        expect("reduce", x, torch.full((3,), float(sum(range(ranks)))))
    out = torch.empty(5 * ranks).to(device)
    dist.all_gather_into_tensor(out, torch.full((5,), float(rank)).to(device))
    expect("all_gather", out, torch.arange(ranks).repeat_interleave(5).float())
    out = torch.empty(4).to(device)
    dist.reduce_scatter_tensor(out, (torch.arange(4 * ranks).float() + rank).to(device))
    expect("reduce_scatter", out, sum(torch.arange(4 * ranks).float() + k for k in range(ranks))[4 * rank:4 * rank + 4])
    out = torch.empty(ranks).to(device)
    dist.all_to_all_single(out, (torch.arange(ranks).float() + 10 * rank).to(device))
    expect("all_to_all", out, torch.arange(ranks).float() * 10 + rank)
    # A ring of sends and receives that are larger than a pipe.
    s, t = torch.full((700_000,), float(rank)).to(device), torch.empty(700_000).to(device)
    for w in dist.batch_isend_irecv([dist.P2POp(dist.isend, s, (rank + 1) % ranks), dist.P2POp(dist.irecv, t, (rank - 1) % ranks)]):
        w.wait()
    expect("ring", t, torch.full((700_000,), float((rank - 1) % ranks)))
    group = dist.new_group([0, ranks - 1])
    if rank in (0, ranks - 1):
        x = torch.full((5,), float(rank + 1)).to(device)
        dist.all_reduce(x, group=group)
        expect("group", x, torch.full((5,), float(ranks + 1)))
    # One rank gives what the other waits for only once their collective is done.
    store = dist.distributed_c10d._get_default_store()
    x = torch.ones(3).to(device)
    work = dist.all_reduce(x, async_op=True)
    if rank == 0:
        work.wait()
        torch.cuda.synchronize()
        store.set("done", "1")
    else:
        store.wait(["done"])
        work.wait()
    expect("collective that another rank waits for", x, torch.full((3,), float(ranks)))
    dist.barrier()


def model():
    torch.manual_seed(3)
    return torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.GELU(), torch.nn.LayerNorm(64), torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 4))


def batches(steps=4, per_rank=6):
    g = torch.Generator().manual_seed(5)
    return [(torch.randn(per_rank * ranks, 16, generator=g), torch.randn(per_rank * ranks, 4, generator=g)) for _ in range(steps)]


def train(net, optimizer, data, part=slice(None), to="cpu"):
    for x, y in data:
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(net(x[part].to(to)), y[part].to(to)).backward()
        optimizer.step()


def reference():
    """Trains in one process with the whole batch on the CPU, which uses nothing of what is tested."""
    net = model()
    train(net, torch.optim.AdamW(net.parameters(), lr=1e-2), batches())
    return [p.detach() for p in net.parameters()]


def close(name, got, want):
    for g, w in zip(got, want, strict=True):
        worst = (g.detach().cpu() - w).abs().max().item()
        if not worst <= 2e-5:
            raise SystemExit(f"rank {rank}: {name} is {worst} away from one process on the CPU")


def ddp():
    net = DistributedDataParallel(model().to(device), device_ids=[device.index], bucket_cap_mb=0.01)
    train(net, torch.optim.AdamW(net.parameters(), lr=1e-2), batches(), slice(6 * rank, 6 * rank + 6), device)
    close("DDP", net.parameters(), reference())
    digest("ddp", net.parameters())


def fsdp():
    net = model().to(device)
    for layer in net:
        if isinstance(layer, torch.nn.Linear):
            fully_shard(layer)
    fully_shard(net)
    train(net, torch.optim.AdamW(net.parameters(), lr=1e-2), batches(), slice(6 * rank, 6 * rank + 6), device)
    assert all(isinstance(p, DTensor) for p in net.parameters())
    full = [p.full_tensor() for p in net.parameters()]
    close("FSDP2", full, reference())
    digest("fsdp", full)


dist.init_process_group("nccl", device_id=device if "split" in parts else None)
for part in parts:
    {"collectives": collectives, "ddp": ddp, "fsdp": fsdp, "split": lambda: None}[part]()
    torch.cuda.synchronize()
dist.destroy_process_group()
os.write(1, f"ok {rank}\n".encode())  # in one piece: all ranks write to the same pipe
