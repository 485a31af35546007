"""A made-up training program: program.py SEED [--blocks A,B] [--loop NAME] [--extras A,B] [--steps N]

Model, loop and what else the program does follow from the seed. What is given is taken instead of what the
seed gives, so that a program that fails can be made smaller. It prints what it is to standard error.
"""

import argparse
import contextlib
import copy
import gc
import io
import random
import threading

import observe
import torch
from blocks import BLOCKS, WIDTH
from torch import nn
from torch.nn import functional as F

LOOPS, EXTRAS = {}, {}


def loop(f):
    LOOPS[f.__name__] = f
    return f


def extra(f):
    EXTRAS[f.__name__] = f
    return f


class Model(nn.Module):
    def __init__(self, names):
        super().__init__()
        self.into = nn.Linear(WIDTH, WIDTH)
        self.blocks = nn.ModuleList(BLOCKS[n]() for n in names * 2)
        self.norm, self.out = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 10)

    def forward(self, x):
        x = self.into(x)
        for b in self.blocks:
            x = self.norm(b(x))
        return self.out(x.mean(1))


class Program:
    """What a loop trains with, and what an extra may change."""

    def __init__(self, names, varied):
        self.names, self.varied, self.n = names, varied, 0
        self.model = Model(names)
        self.optimizers = self.make_optimizers()
        self.batch, self.length, self.at_loss = 6, 24, []

    def make_optimizers(self):
        sparse = [p for m in self.model.modules() if getattr(m, "sparse", 0) is True for p in m.parameters()]
        dense = [p for p in self.model.parameters() if not any(p is s for s in sparse)]
        kind = random.choice(["sgd", "adam", "adamw", "foreach", "fused", "rmsprop", "sets"])
        if kind in ("adamw", "foreach", "fused"):
            how = {} if kind == "adamw" or any(p.is_complex() for p in dense) else {kind: True}
            made = [torch.optim.AdamW(dense, 1e-3, **how)]
        elif kind == "sets":
            made = [torch.optim.SGD(dense[::2], 1e-2), torch.optim.Adam(dense[1::2], 1e-3)]
        else:
            made = [
                {
                    "sgd": lambda: torch.optim.SGD(dense, 1e-2, momentum=0.9),
                    "adam": lambda: torch.optim.Adam(dense, 1e-3, amsgrad=True),
                    "rmsprop": lambda: torch.optim.RMSprop(dense, 1e-3),
                }[kind]()
            ]
        return made + ([torch.optim.SparseAdam(sparse, 1e-3)] if sparse else [])

    def data(self):
        if self.varied:
            self.length = random.choice([8, 12, 16, 20, 24, 28])
        b = self.batch if random.random() < 0.9 else self.batch // 2 + 1
        return torch.randn(b, self.length, WIDTH), torch.randint(10, (b,))

    def loss(self, x, y):
        loss = F.cross_entropy(self.model(x), y)
        for f in self.at_loss:
            loss = f(loss)
        return loss

    def zero(self):
        for o in self.optimizers:
            o.zero_grad(set_to_none=self.n % 3 > 0)

    def step(self):
        for o in self.optimizers:
            o.step()


# -- loops: each call is a step ------------------------------------------------------------------------------


@loop
def plain(p):
    p.zero()
    loss = p.loss(*p.data())
    loss.backward()
    p.step()
    return loss


@loop
def clipped(p):
    loss = p.loss(*p.data())
    p.zero()
    loss.backward()
    dense = [w for w in p.model.parameters() if w.grad is not None and not w.grad.is_sparse]
    if random.random() < 0.5 or any(w.is_complex() for w in dense):
        nn.utils.clip_grad_norm_(dense, 1.0)
    else:
        nn.utils.clip_grad_value_(dense, 0.5)
    p.step()
    return loss


@loop
def accumulated(p):
    p.zero()
    for _ in range(random.randint(1, 3)):
        loss = p.loss(*p.data()) / 2
        loss.backward()
    p.step()
    return loss


@loop
def summed(p):
    """Several forward passes, then one backward pass."""
    p.zero()
    loss = sum(p.loss(*p.data()) for _ in range(random.randint(1, 3)))
    loss.backward()
    p.step()
    return loss


@loop
def closure(p):
    batch = p.data()
    state = torch.get_rng_state(), random.getstate()

    def again():
        torch.set_rng_state(state[0])
        random.setstate(state[1])
        p.zero()
        loss = p.loss(*batch)
        loss.backward()
        return loss

    for o in p.optimizers:
        loss = o.step(again)
    return loss


@loop
def lbfgs(p):
    if p.n == 1:
        p.optimizers = [
            torch.optim.LBFGS([w for w in p.model.parameters() if not w.is_complex()], 0.1, max_iter=3)
        ]
    return closure(p)


@loop
def twice(p):
    """Two backward passes through one graph."""
    p.zero()
    loss = p.loss(*p.data())
    loss.backward(retain_graph=True)
    (loss * 0.5).backward()
    p.step()
    return loss


@loop
def heads(p):
    """Two losses that share a part of the graph."""
    p.zero()
    out = p.model(p.data()[0])
    a, b = out.square().mean(), out.softmax(-1).log().mean()
    a.backward(retain_graph=True)
    if random.random() < 0.5:
        b.backward()
    p.step()
    return a


@loop
def penalty(p):
    """A penalty on the gradient of the input."""
    p.zero()
    x, y = p.data()
    x.requires_grad_()
    loss = p.loss(x, y)
    g = torch.autograd.grad(loss, x, create_graph=True)[0]
    (loss + (g.flatten(1).norm(dim=1) - 1).square().mean()).backward()
    p.step()
    return loss


@loop
def adversarial(p):
    """A GAN: two models and two optimizers."""
    if p.n == 1:
        p.critic = Model(p.names[:1])
        p.of_critic = torch.optim.Adam(list(p.critic.parameters()), 1e-4)
        for m in p.critic.modules():
            if isinstance(m, nn.Embedding):
                m.sparse = False
    x, _ = p.data()
    made = p.model(x).unsqueeze(1).expand(-1, 4, -1).repeat(1, 2, 7)[..., :WIDTH]
    for _ in range(random.randint(1, 2)):
        p.of_critic.zero_grad()
        (p.critic(made.detach()).mean() - p.critic(x).mean()).backward()
        p.of_critic.step()
    p.zero()
    loss = -p.critic(made).mean()
    loss.backward()
    p.step()
    return loss


@loop
def in_thread(p):
    """The backward pass runs in another thread."""
    p.zero()
    loss = p.loss(*p.data())
    t = threading.Thread(target=loss.backward)
    t.start()
    t.join()
    p.step()
    return loss


@loop
def worker(p):
    """The whole step runs in a thread that lives for a few steps."""
    got = []
    t = threading.Thread(target=lambda: got.append(plain(p)))
    t.start()
    t.join()
    return got[0]


@loop
def fails(p):
    """Some batches raise, in the forward or the backward pass, and are skipped."""
    p.zero()
    when = random.choice(["", "", "forward", "backward", "loss"])
    handles = []
    try:
        if when == "forward":
            handles.append(p.model.norm.register_forward_hook(raises))
        loss = p.loss(*p.data())
        if when == "backward":
            handles.append(p.model.norm.weight.register_hook(raises))
        if when == "loss":
            raise ValueError("no good batch")
        loss.backward()
    except ValueError:
        return None
    finally:
        for h in handles:
            h.remove()
    p.step()
    return loss


def raises(*_):
    raise ValueError("no good batch")


@loop
def carried(p):
    """State is carried from step to step, detached."""
    p.zero()
    x, y = p.data()
    state = getattr(p, "state", torch.zeros(WIDTH))
    out = p.model.into(x + state)
    for b in p.model.blocks:
        out = p.model.norm(b(out))
    p.state = out.mean((0, 1)).detach()
    loss = F.cross_entropy(p.model.out(out.mean(1)), y)
    loss.backward()
    p.step()
    return loss


@loop
def functional(p):
    """The gradient is torch.func.grad's or autograd.grad's, and no tensor's .grad is used."""
    x, y = p.data()
    weights = {k: v for k, v in p.model.named_parameters() if v.requires_grad}
    grads = torch.autograd.grad(p.loss(x, y), list(weights.values()), allow_unused=True)
    for w, g in zip(weights.values(), grads):
        w.grad = g
    p.step()
    p.zero()
    return grads[0].sum()


@loop
def inner(p):
    """Meta learning: a step of a copy of the last layer, which the gradient goes through."""
    p.zero()
    x, y = p.data()
    layer = dict(p.model.out.named_parameters())
    half = max(len(x) // 2, 1)
    out = []
    hook = p.model.out.register_forward_pre_hook(lambda m, a: out.append(a[0]))
    p.model(x)
    hook.remove()
    loss = F.cross_entropy(torch.func.functional_call(p.model.out, layer, (out[0][:half],)), y[:half])
    grads = torch.autograd.grad(loss, list(layer.values()), create_graph=True)
    fast = {k: w - 0.1 * g for (k, w), g in zip(layer.items(), grads)}
    loss = F.cross_entropy(torch.func.functional_call(p.model.out, fast, (out[0],)), y)
    loss.backward()
    p.step()
    return loss


@loop
def in_backward(p):
    """Optimizers that step within the backward pass."""
    if p.n == 1:
        p.optimizers = []
        for w in p.model.parameters():
            if not w.requires_grad:
                continue
            o = torch.optim.SGD([w], 1e-3)

            def now(w, o=o):
                o.step()
                o.zero_grad()

            w.register_post_accumulate_grad_hook(now)
    loss = p.loss(*p.data())
    loss.backward()
    return loss


# -- what else happens ---------------------------------------------------------------------------------------


@extra
def evaluates(p):
    if p.n % 4 == 0:
        p.model.eval()
        with random.choice([torch.no_grad, torch.inference_mode])():
            for _ in range(2):
                p.model(p.data()[0])
        p.model.train()


@extra
def averages(p):
    if p.n % 5 == 1:
        p.ema = copy.deepcopy(p.model.state_dict())
    with torch.no_grad():
        for k, v in p.model.state_dict().items():
            if v.is_floating_point() and k in p.ema and p.ema[k].shape == v.shape:
                p.ema[k].lerp_(v, 0.1)


@extra
def copies(p):
    if p.n % 6 == 2:
        other = copy.deepcopy(p.model)
        other(p.data()[0]).sum().backward()


@extra
def stores(p):
    if p.n % 6 == 3:
        file = io.BytesIO()
        torch.save({"model": p.model, "optimizers": [o.state_dict() for o in p.optimizers]}, file)
        file.seek(0)
        loaded = torch.load(file, weights_only=False)
        p.model.load_state_dict(loaded["model"].state_dict())
        for o, s in zip(p.optimizers, loaded["optimizers"]):
            o.load_state_dict(s)


@extra
def freezes(p):
    if p.n % 7 == 3:
        p.frozen = random.choice(p.model.blocks)
        p.were = [w for w in p.frozen.parameters() if w.requires_grad]
        for w in p.were:
            w.requires_grad_(False)
    elif p.n % 7 == 6 and hasattr(p, "were"):
        for w in p.were:
            w.requires_grad_(True)


@extra
def swaps(p):
    """A block is replaced, and the optimizers with it."""
    if p.n in (7, 20, 40):
        p.model.blocks[0] = BLOCKS[random.choice(["Mlp", "Residual"])]()
        p.optimizers = p.make_optimizers()


@extra
def grows(p):
    p.batch = 4 + (p.n // 5) % 4 * 2


@extra
def collects(p):
    if p.n == 1:
        gc.disable()
    if p.n % 3 == 0:
        gc.collect()


@extra
def anomalies(p):
    torch.autograd.set_detect_anomaly(p.n % 8 == 5, check_nan=False)


@extra
def profiles(p):
    if p.n % 9 == 4:
        with torch.profiler.profile(profile_memory=True, record_shapes=True):
            p.zero()
            p.loss(*p.data()).backward()


@extra
def holds(p):
    """The program holds losses with their graphs for a while."""
    if p.n == 1:
        p.held = []
        p.at_loss.append(lambda loss: (p.held.append(loss), loss)[1])
    del p.held[:-2]


@extra
def hooks_all(p):
    """Hooks on all saved tensors, for all of the program."""
    if p.n == 1:
        p.stack = contextlib.ExitStack()
    if p.n % 10 == 3:
        p.stack.enter_context(torch.autograd.graph.saved_tensors_hooks(lambda t: t.clone(), lambda t: t))
    if p.n % 10 == 7:
        p.stack.close()


@extra
def forks(p):
    if p.n % 10 == 5:
        data = torch.utils.data.DataLoader(torch.arange(8), batch_size=2, num_workers=1)
        sum(b.sum() for b in data)


@extra
def scheduled(p):
    if p.n == 1:
        p.schedulers = [torch.optim.lr_scheduler.LinearLR(o) for o in p.optimizers]
    for s in p.schedulers:
        if s.optimizer in p.optimizers:
            s.step()


@extra
def peeks(p):
    """Walks the graph and reads what its nodes saved."""
    if p.n == 1:
        p.at_loss.append(peek)


def peek(loss):
    todo, seen = [loss.grad_fn], set()
    while todo:
        node = todo.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        for name in dir(node):
            if name.startswith("_saved_"):
                getattr(node, name)
        todo.extend(n for n, _ in node.next_functions)
    return loss


@extra
def default_device(p):
    if p.n == 1:
        torch.set_default_device("cpu")


@extra
def doubles(p):
    if p.n % 12 == 9:
        p.model(p.data()[0])  # a graph that no backward pass uses


def arguments():
    a = argparse.ArgumentParser()
    a.add_argument("seed", type=int)
    a.add_argument("--blocks")
    a.add_argument("--loop")
    a.add_argument("--extras")
    a.add_argument("--varied", type=int)
    a.add_argument("--also", help="an extra beside those of the seed")
    a.add_argument("--steps", type=int, default=1 << 30)
    return a.parse_args()


def main():
    a = arguments()
    draw = random.Random(a.seed)
    blocks = draw.sample(sorted(BLOCKS), draw.randint(2, 5))
    name, extras = (
        draw.choice(sorted(LOOPS)),
        draw.sample(sorted(set(EXTRAS) - {a.also}), draw.choice([0, 1, 1, 2, 3])),
    )
    varied = draw.random() < 0.4
    if name in ("penalty", "functional"):  # autograd.grad does not go through it
        blocks = [b for b in blocks if b != "Reentrant"] or ["Mlp"]
    if name == "penalty":  # the derivative of these has none
        blocks = [b for b in blocks if b not in ("Fused", "Images", "Recurrent", "Packed")] or ["Mlp"]
    if a.blocks is not None:
        blocks = a.blocks.split(",")
    if a.extras is not None:
        extras = [e for e in a.extras.split(",") if e]
    if a.varied is not None:
        varied = bool(a.varied)
    name = a.loop or name
    torch.manual_seed(a.seed)
    random.seed(a.seed)
    print(
        f"--blocks {','.join(blocks)} --loop {name} --extras {','.join(extras)!r} --varied {int(varied)}",
        flush=True,
    )
    p = Program(blocks, varied)
    extras = ([a.also] if a.also else []) + extras
    while p.n < a.steps:
        p.n += 1
        for e in extras:
            EXTRAS[e](p)
        loss = LOOPS[name](p)
        if loss is not None:
            observe.stepped([loss.detach()])


if __name__ == "__main__":
    main()
