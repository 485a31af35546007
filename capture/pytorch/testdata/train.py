"""Train small networks, one after the other, and print what they learnt to the last bit.

usage: train.py SCENARIO[@STEPS][,SCENARIO...]

For each scenario: every loss in hexadecimal, a digest of all parameters, gradients and buffers, and the bytes
of its own tensors. If GATE names a folder, each scenario prints "at NAME" at its fourth step and waits for a
file of that name, so that a test can ask for something first. While the file named by HOLD exists, no step
begins.
"""
import copy
import gc
import hashlib
import json
import os
import sys
import time

import torch
from torch.nn import functional as F

torch.set_num_threads(1)
STEPS = int(os.environ.get("STEPS", "8"))
HOLD = os.environ.get("HOLD", "")


def write(*words):
    """Writes a line in one piece, since several processes write to one file."""
    sys.stdout.flush()
    os.write(1, (" ".join(words) + "\n").encode())


def gate(name, step):
    while os.path.exists(HOLD):
        time.sleep(0.01)
    folder = os.environ.get("GATE")
    if folder and step == 3:
        write("at", name)
        for _ in range(12000):
            if os.path.exists(os.path.join(folder, name)):
                return
            time.sleep(0.01)
        raise RuntimeError("nobody opened the gate")
    time.sleep(float(os.environ.get("PACE", "0.005" if folder else "0")))  # the pace of a step


def unique(tensors):
    """The bytes of the tensors' storages, each counted once."""
    found = {}
    for t in tensors:
        t = getattr(t, "_local_tensor", t)
        if t.is_sparse:
            found.update((p.untyped_storage()._cdata, p.untyped_storage().nbytes())
                         for p in (t._indices(), t._values()))
            continue
        found[t.untyped_storage()._cdata] = t.untyped_storage().nbytes()
    return sum(found.values())


def say(name, losses, optimizers, model=None, batch=None, buffers=(), weights=()):
    params = [p for o in optimizers for g in o.param_groups for p in g["params"]]
    grads = [p.grad for p in params if p.grad is not None]
    state = [v for o in optimizers for s in o.state.values() for v in s.values()]
    state += [t for v in state if isinstance(v, list) for t in v]
    state = [t for t in state if isinstance(t, torch.Tensor)]
    digest = hashlib.sha256()
    for t in params + grads + list(buffers):  # running statistics do not affect training, but are learnt too
        local = getattr(t, "_local_tensor", t).detach().to_dense().contiguous()
        digest.update(local.view(-1).view(torch.uint8).numpy().tobytes())
    truth = {"name": name, "parameters": unique(params + list(weights)), "gradients": unique(grads)}
    truth["optimizer_state"] = unique(state)
    if model is not None:
        truth["buffers"] = unique(model.buffers())
        truth["saved"] = saved(model, batch, params)
    write("losses", name, *[x.hex() for x in losses])
    write("digest", name, digest.hexdigest())
    write("truth", json.dumps(truth))


def saved(model, batch, params):
    """The bytes that autograd keeps for backward, as its hooks report them: storages other than those of
    parameters, buffers and the batch."""
    own = {t.untyped_storage()._cdata for t in list(params) + list(model.buffers()) + list(batch)}
    seen, keep = {}, []

    def pack(t):
        key = t.untyped_storage()._cdata
        if key not in own:
            seen[key] = t.untyped_storage().nbytes()
        keep.append(t)  # so that no address is used twice
        return t

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        loss = model(*batch)
    del loss
    return sum(seen.values())


class Loss(torch.nn.Module):
    """A network and its loss as one module."""

    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, x, y):
        return F.cross_entropy(self.net(x).flatten(0, -2), y.flatten())


def loop(name, model, batch, optimizer=None, autocast=False, accumulate=1, scaler=None, truth=True, **kept):
    """weights, of kept, are those that the optimizer has not, and after is called after each step."""
    optimizer = optimizer or torch.optim.AdamW(model.parameters(), lr=1e-3)
    losses, after = [], kept.get("after", lambda: None)
    for step in range(STEPS):
        gate(name, step)
        optimizer.zero_grad(set_to_none=True)
        for _ in range(accumulate):
            b = batch()
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
                loss = model(*b)
            (scaler.scale(loss) if scaler else loss / accumulate).backward()
        if scaler:
            if step % 3 == 2:  # an infinity: the scaler skips this step
                next(model.parameters()).grad[0] = float("inf")
            scaler.step(optimizer)
            scaler.update()
        else:
            optimizer.step()
        after()
        losses.append(loss.item())
    say(name, losses, [optimizer], model if truth else None, batch(), model.buffers(),
        kept.get("weights", ()))


def images(n=4, size=16):
    return lambda: (torch.randn(n, 3, size, size), torch.randint(0, 10, (n,)))


class ByHand:
    """An optimizer that torch does not know. It changes parameters in a way that their versions do not
    count, as fastai's does."""

    def __init__(self, params):
        self.param_groups, self.state = [{"params": list(params)}], {}

    def zero_grad(self, set_to_none=True):
        for p in self.param_groups[0]["params"]:
            if p.grad is not None:
                p.grad.zero_()

    def step(self):
        for p in self.param_groups[0]["params"]:
            p.data.add_(p.grad, alpha=-0.01)


def mlp(name, optimizer=None):
    net = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.GELU(), torch.nn.Linear(256, 256),
                              torch.nn.Tanh(), torch.nn.Linear(256, 10))
    loop(name, Loss(net), lambda: (torch.randn(32, 64), torch.randint(0, 10, (32,))),
         optimizer and optimizer(net.parameters()))


def byhand(name):
    """Trains with an optimizer of its own."""
    mlp(name, ByHand)


class Residual(torch.nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.a = torch.nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.b = torch.nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.na, self.nb = torch.nn.BatchNorm2d(channels), torch.nn.BatchNorm2d(channels)

    def forward(self, x):
        return F.relu(x + self.nb(self.b(F.relu(self.na(self.a(x)), inplace=True))))


def convnet(name):
    net = torch.nn.Sequential(torch.nn.Conv2d(3, 16, 3), torch.nn.BatchNorm2d(16),
                              torch.nn.ReLU(inplace=True), Residual(16), torch.nn.MaxPool2d(2), Residual(16),
                              torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Dropout(0.1),
                              torch.nn.Linear(16, 10))
    loop(name, Loss(net), images(), torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9))


class Block(torch.nn.Module):
    def __init__(self, width, heads=4):
        super().__init__()
        self.heads = heads
        self.n1, self.n2 = torch.nn.LayerNorm(width), torch.nn.LayerNorm(width)
        self.qkv, self.out = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)
        self.mlp = torch.nn.Sequential(torch.nn.Linear(width, 4 * width), torch.nn.GELU(),
                                       torch.nn.Linear(4 * width, width), torch.nn.Dropout(0.1))

    def forward(self, x):
        n, t, c = x.shape
        q, k, v = (y.view(n, t, self.heads, c // self.heads).transpose(1, 2)
                   for y in self.qkv(self.n1(x)).split(c, 2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(n, t, c))
        return x + self.mlp(self.n2(x))


class GPT(torch.nn.Module):
    def __init__(self, vocabulary=100, width=32, layers=2, checkpoint=False):
        super().__init__()
        self.embed = torch.nn.Embedding(vocabulary, width)
        self.blocks = torch.nn.ModuleList(Block(width) for _ in range(layers))
        self.head = torch.nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.embed.weight  # tied
        self.checkpoint = checkpoint

    def forward(self, x):
        x = self.embed(x)
        for b in self.blocks:
            x = torch.utils.checkpoint.checkpoint(b, x, use_reentrant=False) if self.checkpoint else b(x)
        return self.head(x)


def tokens():
    x = torch.randint(0, 100, (4, 17))
    return x[:, :-1], x[:, 1:]


def gpt(name):
    loop(name, Loss(GPT()), tokens)


def checkpoint(name):
    loop(name, Loss(GPT(checkpoint=True)), tokens, truth=False)


def amp(name):
    loop(name, Loss(GPT()), tokens, autocast=True, truth=False)


def scaled(name):
    model = Loss(torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10)))
    loop(name, model, lambda: (torch.randn(8, 16), torch.randint(0, 10, (8,))),
         scaler=torch.amp.GradScaler("cpu"), truth=False)


def accumulate(name):
    net = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10))
    loop(name, Loss(net), lambda: (torch.randn(16, 64), torch.randint(0, 10, (16,))),
         accumulate=3, truth=False)


def tuned():
    """A network whose first layers are frozen, as that under LoRA is, and an optimizer of what is not."""
    model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10))
    model[0].requires_grad_(False)
    return model, torch.optim.AdamW(model[2].parameters(), lr=1e-2)


def rows():
    return torch.randn(16, 64), torch.randint(0, 10, (16,))


def frozen(name):
    """Frozen weights, and a copy of the model that averages the weights."""
    model, optimizer = tuned()
    copied = copy.deepcopy(model)

    @torch.no_grad()
    def average():
        for a, p in zip(copied.parameters(), model.parameters()):
            a.lerp_(p, 0.01)

    weights = [*model.parameters(), *copied.parameters()]
    loop(name, Loss(model), rows, optimizer, truth=False, weights=weights, after=average)


def averaged(name):
    """Averages of the weights in tensors that no module holds."""
    model, optimizer = tuned()
    averages = [p.detach().clone() for p in model.parameters()]

    @torch.no_grad()
    def average():
        for a, p in zip(averages, model.parameters()):
            a.sub_(0.01 * (a - p))

    weights = [*model.parameters(), *averages]
    loop(name, Loss(model), rows, optimizer, truth=False, weights=weights, after=average)


def closure(name, optimizer=None, truth=True):
    """Computes gradients in a closure that the optimizer calls, as Lightning does."""
    model = Loss(GPT())
    optimizer = (optimizer or torch.optim.AdamW)(model.parameters(), lr=1e-3)
    losses = []

    def learn():
        optimizer.zero_grad(set_to_none=True)
        loss = model(*tokens())
        loss.backward()
        return loss

    for step in range(STEPS):
        gate(name, step)
        losses.append(optimizer.step(learn).item())
    say(name, losses, [optimizer], model if truth else None, tokens(), model.buffers())


def lbfgs(name):
    """Its optimizer calls the closure several times in a step."""
    closure(name, lambda parameters, lr: torch.optim.LBFGS(parameters, lr, max_iter=2, history_size=2),
            truth=False)


def sparse(name):
    """An embedding with sparse gradients, and a subclass of Tensor."""

    class Named(torch.Tensor):
        pass

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = torch.nn.EmbeddingBag(1000, 16, mode="sum", sparse=True)
            self.head = torch.nn.Linear(16, 10)

        def forward(self, x, y):
            return F.cross_entropy(self.head(self.embed(x).as_subclass(Named)).as_subclass(torch.Tensor), y)

    net = Net()
    loop(name, net, lambda: (torch.randint(0, 1000, (8, 5)), torch.randint(0, 10, (8,))),
         torch.optim.SGD(net.parameters(), lr=0.1), truth=False)


class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return 4 * STEPS

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(i)
        return torch.randn(16, generator=g), i % 10


def loader(name):
    model, losses = Loss(torch.nn.Linear(16, 10)), []
    optimizer = torch.optim.Adam(model.parameters())
    data = torch.utils.data.DataLoader(Numbers(), batch_size=4, num_workers=2,
                                       multiprocessing_context=os.environ.get("WORKERS", "fork"))
    for step, batch in enumerate(data):
        gate(name, step)
        optimizer.zero_grad()
        loss = model(*batch)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    say(name, losses, [optimizer])


def arrays(name):
    """Data that comes without an op, from numpy and from lists; a network and a criterion that are separate
    modules; a table that was there before."""
    import numpy

    r = numpy.random.RandomState(0)
    net, criterion = torch.nn.Sequential(torch.nn.Linear(40, 70), torch.nn.ReLU(),
                                         torch.nn.Linear(70, 10)), torch.nn.CrossEntropyLoss()
    optimizer, table, losses = torch.optim.SGD(net.parameters(), lr=0.1), torch.randn(13, 40), []
    for step in range(STEPS):
        gate(name, step)
        x = torch.from_numpy(r.randn(8, 40).astype("float32"))
        y = torch.tensor(r.randint(0, 10, 8).tolist())
        optimizer.zero_grad()
        loss = criterion(net(x + table[step]), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    say(name, losses, [optimizer])


def leaks(name):
    """Leaks a copy of the network's output of every batch; all else it keeps is made once or replaced each
    step."""
    net = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10))
    optimizer, kept, last, losses = torch.optim.Adam(net.parameters()), [], None, []
    for step in range(STEPS):
        gate(name, step)
        optimizer.zero_grad()
        x, y = torch.randn(32, 64), torch.randint(0, 10, (32,))
        out = net(x)
        if name == "leaks":
            kept.append(out.detach().clone())  # 1280 bytes a step
        last = (x * 2, out.detach().clone())
        loss = F.cross_entropy(out, y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    say(name, losses, [optimizer])
    return kept, last


def tidy(name):
    """The same without the leak."""
    leaks(name)


def gan(name):
    make = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.ReLU(), torch.nn.Linear(32, 16))
    judge = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.LeakyReLU(), torch.nn.Linear(32, 1))
    of_judge, of_make = torch.optim.Adam(judge.parameters()), torch.optim.Adam(make.parameters())
    losses = []
    for step in range(STEPS):
        gate(name, step)
        of_judge.zero_grad()
        d = F.softplus(judge(make(torch.randn(16, 8)).detach())).mean()
        d = d + F.softplus(-judge(torch.randn(16, 16))).mean()
        d.backward()
        of_judge.step()
        of_make.zero_grad()
        g = F.softplus(-judge(make(torch.randn(16, 8)))).mean()
        g.backward()
        of_make.step()
        losses += [d.item(), g.item()]
    say(name, losses, [of_judge, of_make])


def compiled(name, backend="eager"):
    net = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10))
    loop(name, torch.compile(Loss(net), backend=backend),
         lambda: (torch.randn(16, 64), torch.randint(0, 10, (16,))), truth=False)


def inductor(name):
    """Compiled to native code, which needs a C++ compiler."""
    net = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.GELU(), torch.nn.LayerNorm(256),
                              torch.nn.Linear(256, 256))
    loop(name, torch.compile(Loss(net)),
         lambda: (torch.randn(128, 256), torch.randint(0, 256, (128,))), truth=False)


def graphs(name):
    """Replays a stand-in for a CUDA graph in each step, and prints at the end whether replay is still the
    program's own."""

    class Graph(object):
        def replay(self):
            return None

        def capture_begin(self):
            return None

    theirs, torch.cuda.CUDAGraph, net = Graph.replay, Graph, torch.nn.Linear(16, 10)

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.net = net

        def forward(self, x, y):
            torch.cuda.CUDAGraph().replay()
            return F.cross_entropy(self.net(x), y)

    loop(name, Net(), lambda: (torch.randn(8, 16), torch.randint(0, 10, (8,))), truth=False)
    write("replay is", "its own" if Graph.replay is theirs else "another's")


def moded(name):
    """Trains inside a dispatch mode of its own."""
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter:
        net = torch.nn.Linear(16, 10)
        loop(name, Loss(net), lambda: (torch.randn(8, 16), torch.randint(0, 10, (8,))), truth=False)
    write("losses", "flops", float(counter.get_total_flops()).hex())


def functional(name):
    """Takes gradients with torch.func as well as with backward()."""
    net = torch.nn.Linear(16, 1)

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.net = net

        def forward(self, x, y):
            slope = torch.func.grad(lambda z: (z * z).sum())(y)
            return self.net(x).square().mean() + slope.sum() + torch.func.vmap(lambda z: z.sum())(x).mean()

    loop(name, Net(), lambda: (torch.randn(8, 16), torch.randn(4)), truth=False)


def raises(name):
    """Raises an exception in the middle of a step, and nothing catches it."""
    model = torch.nn.Linear(16, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(STEPS):
        gate(name, step)
        optimizer.zero_grad()
        loss = model(torch.randn(4, 16)).square().mean()
        loss.backward()
        write("losses", name, loss.item().hex())
        if step == 4:
            raise ValueError("a bad batch")
        optimizer.step()


def interrupted(name):
    """Trains until Ctrl-C, which it catches, and then a little more."""
    model = torch.nn.Linear(16, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    step = 0
    try:
        while True:
            gate(name, step)
            step += 1
            optimizer.zero_grad()
            model(torch.randn(4, 16)).square().mean().backward()
            optimizer.step()
    except KeyboardInterrupt:
        write("interrupted")
    sys.exit(7)


def forks(name):
    """A forked child trains while its parent does."""
    pid = os.fork()
    if pid == 0:
        torch.manual_seed(5)
        mlp(name + "-child")
        sys.stdout.flush()
        os._exit(0)
    mlp(name)
    assert os.waitpid(pid, 0)[1] == 0


def ranks(name, wraps=("ddp", "fsdp")):
    """Two processes with gloo."""
    import socket

    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    os.environ["STEPS"] = str(STEPS)  # for the processes that are spawned
    torch.multiprocessing.spawn(rank, (wraps, port), nprocs=2)


def rank(k, wraps, port):
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", "tcp://127.0.0.1:%d" % port, rank=k, world_size=2)
    for wrap in wraps:
        wrapped(k, wrap)
    # A wrapped model keeps its group in a cycle, and if a group outlives the interpreter, its threads may
    # abort the process.
    gc.collect()
    torch.distributed.destroy_process_group()


def wrapped(k, wrap):
    torch.manual_seed(0)
    model = Loss(torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10)))
    batch = lambda: (torch.randn(16, 64), torch.randint(0, 10, (16,)))
    if wrap == "ddp":
        model, batch = Loss(GPT()), tokens
        model = torch.nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)
    else:
        from torch.distributed.fsdp import fully_shard

        mesh = torch.distributed.device_mesh.init_device_mesh("cpu", (2,))
        for layer in (model.net[0], model.net[2]):
            fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
    torch.manual_seed(k)
    loop("%s-%d" % (wrap, k), model, batch, truth=False)


def ddp(name):
    ranks(name, ("ddp",))


def fsdp(name):
    ranks(name, ("fsdp",))


if __name__ == "__main__":
    chosen = sys.argv[1].split(",")
    for scenario in chosen:
        torch.manual_seed(1)
        STEPS = int(scenario.partition("@")[2] or os.environ.get("STEPS", "8"))
        write("begins", scenario)
        try:
            globals()[scenario.partition("@")[0]](scenario)
        except ValueError:
            if scenario is chosen[-1]:  # nothing catches what the last one raises
                raise
