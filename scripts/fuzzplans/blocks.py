"""Parts of made-up models. Each maps a batch of sequences (batch, length, WIDTH) to one of the same shape.

What a part does, programs do: the odd ones are there because an agent that watches is likely to stumble over
them. A part may take random decisions; they follow from torch's and Python's seeds alone.
"""

import contextlib
import copy
import math
import random

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils import checkpoint

WIDTH = 64
BLOCKS = {}


def block(cls):
    BLOCKS[cls.__name__] = cls
    return cls


@block
class Mlp(nn.Sequential):
    def __init__(self):
        super().__init__(
            nn.Linear(WIDTH, 3 * WIDTH), nn.ReLU(inplace=True), nn.Dropout(0.1), nn.Linear(3 * WIDTH, WIDTH)
        )


@block
class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.mlp = nn.LayerNorm(WIDTH), Mlp()

    def forward(self, x):
        return x + self.mlp(self.norm(x))


@block
class Convs(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv1d(WIDTH, WIDTH, 3, padding=1, bias=False),
            nn.BatchNorm1d(WIDTH),
            nn.ReLU(inplace=True),
            nn.Conv1d(WIDTH, WIDTH, 3, padding=1, groups=4),
            nn.GroupNorm(4, WIDTH),
            nn.Hardswish(inplace=True),
        )

    def forward(self, x):
        return self.body(x.transpose(1, 2)).transpose(1, 2)


@block
class Images(nn.Module):
    """A small U-net, with pooling, indices and a skip connection."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Conv2d(1, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1)
        self.norm, self.out = nn.BatchNorm2d(8), nn.Conv2d(16, 1, 1)

    def forward(self, x):
        x = x.unsqueeze(1)
        a = F.relu_(self.a(x))
        size = a.shape[2:]
        down, _ = F.max_pool2d(a, 2, ceil_mode=True, return_indices=True)
        up = F.interpolate(self.norm(self.b(down)), size=size, mode="bilinear", align_corners=False)
        return self.out(torch.cat([a, up], 1)).squeeze(1)


@block
class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        kind = random.choice([nn.LSTM, nn.GRU, nn.RNN])
        both = random.random() < 0.5
        self.rnn = kind(
            WIDTH, WIDTH // (2 if both else 1), 2, batch_first=True, dropout=0.1, bidirectional=both
        )

    def forward(self, x):
        return self.rnn(x)[0]


@block
class Packed(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = random.choice([nn.LSTM, nn.GRU])(WIDTH, WIDTH, batch_first=True)

    def forward(self, x):
        lengths = torch.randint(1, x.shape[1] + 1, (x.shape[0],))
        lengths[0] = x.shape[1]
        packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        return nn.utils.rnn.pad_packed_sequence(self.rnn(packed)[0], batch_first=True)[0]


@block
class Cells(nn.Module):
    """A loop over time in Python."""

    def __init__(self):
        super().__init__()
        self.cell = nn.LSTMCell(WIDTH, WIDTH)

    def forward(self, x):
        h = c = x.new_zeros(x.shape[0], WIDTH)
        out = []
        for t in x[:, :12].unbind(1):
            h, c = self.cell(t, (h, c))
            out.append(h)
        return x + torch.stack(out, 1).mean(1, keepdim=True)


@block
class Encoder(nn.TransformerEncoderLayer):
    def __init__(self):
        super().__init__(WIDTH, 4, 2 * WIDTH, 0.1, batch_first=True, norm_first=random.random() < 0.5)


@block
class Attention(nn.Module):
    """Attention by hand, from views of one product, with a mask."""

    def __init__(self):
        super().__init__()
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = (y.view(b, t, 4, -1).transpose(1, 2) for y in self.qkv(x).chunk(3, -1))
        mask = torch.ones(t, t, dtype=torch.bool).tril()
        weights = (q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])).masked_fill(~mask, -math.inf)
        return self.out((F.softmax(weights, -1) @ v).transpose(1, 2).reshape(b, t, -1))


@block
class Fused(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)

    def forward(self, x):
        q, k, v = (y.unflatten(-1, (4, -1)).transpose(1, 2) for y in self.qkv(x).split(WIDTH, -1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return x + y.transpose(1, 2).flatten(2)


class _Checkpointed(nn.Module):
    reentrant = False

    def __init__(self):
        super().__init__()
        self.inner = BLOCKS[random.choice(["Mlp", "Residual", "Encoder", "Convs", "Attention", "Written"])]()

    def forward(self, x):
        return checkpoint.checkpoint(self.inner, x, use_reentrant=self.reentrant)


@block
class Checkpointed(_Checkpointed):
    pass


@block
class Reentrant(_Checkpointed):
    reentrant = True


class _Squash(torch.autograd.Function):
    """Saves its input, its output, a view and what is no tensor."""

    @staticmethod
    def forward(ctx, x, scale, what):
        y = torch.tanh(x) * scale
        ctx.save_for_backward(x, y, x[..., ::2], None)
        ctx.scale, ctx.what = scale, what
        ctx.set_materialize_grads(False)
        return y, y.sum()

    @staticmethod
    def backward(ctx, g, s):
        x, y, view, none = ctx.saved_tensors
        assert none is None and ctx.what == {"a": 1} and view.shape[-1] * 2 == x.shape[-1]
        out = (1 - (y / ctx.scale) ** 2) * ctx.scale
        return (g * out if g is not None else torch.zeros_like(x)) + (0 if s is None else s * out), None, None


class _Doubles(torch.autograd.Function):
    """Changes its input, and saves it afterwards."""

    @staticmethod
    def forward(ctx, x):
        x.mul_(2)
        ctx.mark_dirty(x)
        ctx.save_for_backward(x)
        return x

    @staticmethod
    def backward(ctx, g):
        ctx.saved_tensors[0].sum()
        return g * 2


@block
class Custom(nn.Module):
    def forward(self, x):
        y, total = _Squash.apply(x, 1.5, {"a": 1})
        return _Doubles.apply(y.clone()) + total * 1e-6


@block
class Attributes(nn.Module):
    """A function that keeps tensors as attributes of its context."""

    class _Keeps(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, w):
            ctx.x, ctx.w = x, w
            return x @ w

        @staticmethod
        def backward(ctx, g):
            return g @ ctx.w.t(), ctx.x.flatten(0, 1).t() @ g.flatten(0, 1)

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(WIDTH, WIDTH) / 8)

    def forward(self, x):
        return self._Keeps.apply(x, self.weight)


@block
class Written(nn.Module):
    """Writes into views, and into tensors that were saved and are no longer needed in that form."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        y = self.a(x)
        y[:, ::2] *= 0.5
        y[..., : WIDTH // 2].add_(x[..., WIDTH // 2 :])
        z = torch.empty_like(y)
        z[:, :1] = y[:, :1]
        z[:, 1:] = self.b(y[:, 1:]).sigmoid_()
        z.mul_(y.detach().abs().amax().clamp(1, 2))
        z.transpose(1, 2).clamp_(-4, 4)
        return F.leaky_relu_(z, 0.1)


@block
class Resized(nn.Module):
    """Uses set_, resize_ and .data."""

    def __init__(self):
        super().__init__()
        self.a = nn.Linear(WIDTH, WIDTH)
        self.register_buffer("mean", torch.zeros(WIDTH))

    def forward(self, x):
        y = self.a(x)
        scratch = torch.empty(0).resize_(y.shape)
        scratch.copy_(y.detach())
        other = torch.empty(0).set_(scratch)
        other.data.mul_(0.5)
        self.mean = 0.9 * self.mean + 0.1 * scratch.mean((0, 1))
        held = torch.empty(1 << 12)
        held.untyped_storage().resize_(0)
        return torch.tanh(y - self.mean) + scratch


@block
class Scattered(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(WIDTH) / 8)

    def forward(self, x):
        b, t, _ = x.shape
        to = torch.randint(t, (b, t, 1)).expand_as(x)
        y = torch.zeros_like(x).scatter_add_(1, to, x * self.weight)
        y = y + x.gather(1, to).index_select(2, torch.randperm(WIDTH))
        y = y.index_put((torch.arange(b),), x[:, -1:].expand(b, t, -1), accumulate=True)
        top, _ = y.topk(3, -1)
        picked = y[y > 1.5]
        y = torch.where(y > 0, y.sort(-1).values, y.cumsum(1) / t)
        return (y + top.sum(-1, keepdim=True) + picked.sum() * 1e-4) * 0.5


@block
class Experts(nn.Module):
    """Tokens go to one of several experts, each time to others."""

    def __init__(self):
        super().__init__()
        self.router, self.experts = nn.Linear(WIDTH, 4), nn.ModuleList(Mlp() for _ in range(4))

    def forward(self, x):
        share, chosen = F.softmax(self.router(x), -1).max(-1)
        out = torch.zeros_like(x)
        for i, expert in enumerate(self.experts):
            if (chosen == i).any():
                out[chosen == i] = expert(x[chosen == i])
        return x + out * share.unsqueeze(-1)


@block
class Skipped(nn.Module):
    """Layers that are skipped at random, or as the data says."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(BLOCKS[random.choice(["Residual", "Encoder", "Mlp"])]() for _ in range(4))

    def forward(self, x):
        for i, layer in enumerate(self.layers):
            if random.random() < 0.7 and (i % 2 or float(x.detach().mean()) < 0.01):
                x = x + layer(x)
        return x


@block
class Frequencies(nn.Module):
    """Complex numbers."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(WIDTH, dtype=torch.cfloat) / 8)

    def forward(self, x):
        f = torch.fft.rfft(x, dim=1) * self.weight
        f = torch.view_as_complex(torch.view_as_real(f) * 1.5)
        f = f.conj() * f.abs().clamp(max=1) + torch.polar(f.abs(), f.detach().angle())
        return torch.fft.irfft(f, n=x.shape[1], dim=1) + f.imag.mean()


def _scales_gradient(module, inputs, outputs):
    return None if inputs[0] is None else (inputs[0] * 1.0,)


def _scales(module, args, out):
    return out * 1.01


def _passes(module, args, kwargs):
    return args, kwargs


@block
class Hooked(nn.Module):
    """Hooks on tensors and modules; a module that returns a dictionary; an input by name."""

    class _Inner(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.Linear(WIDTH, WIDTH)

        def forward(self, *, x, mask=None):
            return {"out": self.a(x).tanh(), "mask": mask, "both": (x, [x.mean()])}

    def __init__(self):
        super().__init__()
        self.inner, self.seen = self._Inner(), 0
        self.inner.a.register_full_backward_hook(_scales_gradient)
        self.inner.a.register_forward_hook(_scales)
        self.inner.register_forward_pre_hook(_passes, with_kwargs=True)

    def _count(self, g):
        self.seen += 1
        return g.clamp(-1, 1)

    def forward(self, x):
        out = self.inner(x=x)["out"]
        if out.requires_grad:
            out.register_hook(self._count)
            out.retain_grad()
        self.last = out if out.is_leaf else None
        return out + 0.0 * float(getattr(out.grad_fn, "_saved_result", out).detach().flatten()[0])


@block
class Offloads(nn.Module):
    """The program's own hooks on saved tensors."""

    def __init__(self):
        super().__init__()
        self.inner = BLOCKS[random.choice(["Mlp", "Encoder", "Attention", "Recurrent"])]()
        self.how = random.choice(["cpu", "half", "list", "inside"])

    def forward(self, x):
        if self.how == "cpu":
            with torch.autograd.graph.save_on_cpu():
                return self.inner(x)
        if self.how == "inside":
            with torch.autograd.graph.saved_tensors_hooks(lambda t: [t.clone()], lambda t: t[0]):
                with torch.autograd.graph.saved_tensors_hooks(lambda t: (t.detach(), 1), lambda p: p[0]):
                    return self.inner(x)
        if self.how == "half":

            def pack(t):
                return t.bfloat16() if t.dtype == torch.float32 and not t.is_leaf else t

            def unpack(t):
                return t.float() if t.dtype == torch.bfloat16 else t

            with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
                return self.inner(x)
        with torch.autograd.graph.saved_tensors_hooks(
            lambda t: t.detach().numpy().copy() if t.dtype == torch.float32 else t,
            lambda a: a if isinstance(a, torch.Tensor) else torch.from_numpy(a),
        ):
            return self.inner(x)


@block
class Tied(nn.Module):
    """One weight used three times, and one block used twice."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.body = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH), Residual()
        self.b.weight = self.a.weight

    def forward(self, x):
        return self.body(F.gelu(self.body(self.a(x)))) @ self.b.weight + self.b.bias


@block
class Ensemble(nn.Module):
    """Models in one call: functional_call below vmap."""

    def __init__(self):
        super().__init__()
        self.members = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(3))

    def forward(self, x):
        base = copy.deepcopy(self.members[0]).to("meta")
        stacked = {
            k: torch.stack([dict(m.named_parameters())[k] for m in self.members]) for k in ("weight", "bias")
        }
        out = torch.func.vmap(lambda p, x: torch.func.functional_call(base, p, (x,)), in_dims=(0, None))(
            stacked, x
        )
        return out.mean(0).tanh()


@block
class Derivative(nn.Module):
    """A gradient within the forward pass, which the loss goes through."""

    def __init__(self):
        super().__init__()
        self.energy = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Softplus(), nn.Linear(WIDTH, 1))

    def forward(self, x):
        if not torch.is_grad_enabled():
            return x
        y = x if x.requires_grad else x.detach().requires_grad_()
        return x - torch.autograd.grad(self.energy(y).sum(), y, create_graph=True)[0]


@block
class Functional(nn.Module):
    """torch.func.grad and jvp within the forward pass."""

    def __init__(self):
        super().__init__()
        self.a = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        f = lambda y: torch.tanh(self.a(y)).square().sum()  # noqa: E731
        g = torch.func.grad(f)(x.detach())
        out, tangent = torch.func.jvp(lambda y: torch.sin(y), (x.detach(),), (g,))
        return self.a(x) + out + tangent.clamp(-1, 1)


@block
class Normed(nn.Module):
    """Parametrized weights, and one that each forward pass changes."""

    def __init__(self):
        super().__init__()
        self.a = nn.utils.parametrizations.weight_norm(nn.Linear(WIDTH, WIDTH))
        self.b = nn.utils.parametrizations.spectral_norm(nn.Linear(WIDTH, WIDTH))
        self.bn = nn.BatchNorm1d(WIDTH)

    def forward(self, x):
        return self.bn(self.b(torch.relu(self.a(x))).transpose(1, 2)).transpose(1, 2)


@block
class Words(nn.Module):
    """Embeddings: sparse, with a limited norm, and in bags."""

    def __init__(self):
        super().__init__()
        self.sparse = nn.Embedding(500, WIDTH, sparse=True)
        self.limited = nn.Embedding(500, WIDTH, max_norm=1.0, padding_idx=0)
        self.bag = nn.EmbeddingBag(500, WIDTH, mode="mean")

    def forward(self, x):
        ids = torch.randint(500, x.shape[:2])
        words = self.sparse(ids) + self.limited(ids.flip(0)).clone()
        return x + words + self.bag(ids).unsqueeze(1)


@block
class Frozen(nn.Module):
    """A frozen block, and one without gradients at all."""

    def __init__(self):
        super().__init__()
        self.frozen, self.teacher = Residual().requires_grad_(False), Residual()

    def forward(self, x):
        with torch.no_grad():
            taught = self.teacher(x)
        return self.frozen(x) + 0.1 * taught


class _Tagged(torch.Tensor):
    pass


@block
class Subclass(nn.Module):
    """A tensor of a type of the program's own."""

    def __init__(self):
        super().__init__()
        self.a = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        return self.a(x.as_subclass(_Tagged)).sigmoid().as_subclass(torch.Tensor) * x


@block
class Autocast(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = BLOCKS[random.choice(["Mlp", "Encoder", "Attention", "Convs", "Fused"])]()

    def forward(self, x):
        with torch.autocast("cpu", torch.bfloat16, enabled=random.random() < 0.9):
            y = self.inner(x)
        return y.float()


@block
class Scripted(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        return _scripted(self.a(x), 0.5)


@torch.jit.script
def _scripted(x: torch.Tensor, s: float) -> torch.Tensor:
    y = torch.tanh(x) * s
    return y * torch.sigmoid(y) + x


@block
class Double(nn.Module):
    """A part in float64, one in integers, and one of no elements."""

    def __init__(self):
        super().__init__()
        self.a = nn.Linear(WIDTH, WIDTH).double()

    def forward(self, x):
        y = self.a(x.double())
        steps = (y.detach() * 16).round().to(torch.int8)
        nothing = y[:, :0].exp().sum() + y.new_zeros(0, 4).sum()
        return y.float() + steps.float() / 16 + nothing.float()


@block
class Keeps(nn.Module):
    """Keeps results of earlier steps."""

    def __init__(self):
        super().__init__()
        self.a, self.bank = nn.Linear(WIDTH, WIDTH), []

    def forward(self, x):
        y = self.a(x)
        self.bank = (self.bank + [y.detach()[:, :2], y.detach().mean((0, 1))])[-6:]
        return y + torch.stack([b for b in self.bank if b.dim() == 1]).mean(0)


@block
class Threads(nn.Module):
    """Branches of the model that run in threads of their own."""

    def __init__(self):
        super().__init__()
        self.a, self.b = Mlp(), Residual()

    def forward(self, x):
        from concurrent.futures import ThreadPoolExecutor

        graded = torch.is_grad_enabled()

        def runs(m):
            with torch.set_grad_enabled(graded):
                return m(x)

        with ThreadPoolExecutor(1) as pool:
            b = pool.submit(runs, self.b).result()
        return self.a(x) + b


@block
class Modes(nn.Module):
    """Modes that the program itself enters."""

    def __init__(self):
        super().__init__()
        self.inner = Residual()
        self.which = random.randrange(3)

    def forward(self, x):
        from torch.utils._python_dispatch import TorchDispatchMode

        class Passes(TorchDispatchMode):
            def __torch_dispatch__(self, func, types, args=(), kwargs=None):
                return func(*args, **(kwargs or {}))

        class Sees(torch.overrides.TorchFunctionMode):
            def __torch_function__(self, func, types, args=(), kwargs=None):
                return func(*args, **(kwargs or {}))

        with [Passes, Sees, contextlib.nullcontext][self.which]():
            return self.inner(x)
