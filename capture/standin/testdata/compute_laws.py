"""Laws of what the stand-in GPU computes. Each function is a law; its docstring is the sentence.

    python compute_laws.py once|late|SEED laws|refusals|NAME...

The laws hold of a program that computes; the refusals are laws about what raises, and leave a list of it in the process's report.

Prints "ok NAME" or "FAIL NAME: why" for each law. The argument is the order of work that the process runs under: a law about races
expects wrong numbers in the late order and right ones at once.
"""
import copy
import inspect
import sys
import traceback
import warnings

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from standin_compute import report

ORDER = sys.argv[1]
LATE = ORDER == "late"
torch.backends.mkldnn.enabled = False
warnings.simplefilter("ignore")
torch.cuda.init()
laws, refusals = {}, {}


def law(f):
    laws[f.__name__] = f
    return f


def refusal(f):
    refusals[f.__name__] = f
    return f


def same(a, b, what="numbers"):
    a, b = a.detach().cpu(), b.detach().cpu()
    assert a.shape == b.shape and a.dtype == b.dtype, f"{what}: {a.shape} {a.dtype} and {b.shape} {b.dtype}"
    if a.is_complex():
        a, b = torch.view_as_real(a), torch.view_as_real(b)
    assert torch.equal(a, b), f"{what} differ by {(a.double() - b.double()).abs().max():.3g}"


def close(a, b, tolerance=1e-5, what="numbers"):
    a, b = a.detach().cpu().double(), b.detach().cpu().double()
    assert a.shape == b.shape, f"{what}: {a.shape} and {b.shape}"
    worst = ((a - b).abs() / (1 + b.abs())).max()
    assert worst <= tolerance, f"{what} differ by {worst:.3g}"


def differ(a, b):
    assert not torch.equal(a.detach().cpu(), b.detach().cpu()), "the numbers are equal"


def refused(f, *words):
    """f raises an error that holds the words."""
    try:
        f()
        torch.cuda.synchronize()
        torch.ones(1, device="cuda").add_(1)
    except Exception as error:
        for w in words:
            assert w in str(error), f"{w!r} is not in {error}"
        return
    raise AssertionError("nothing was raised")


# ---- random numbers

DRAWS = {
    "rand": lambda: torch.rand(100, device="cuda"),
    "randn": lambda: torch.randn(100, device="cuda"),
    "randint": lambda: torch.randint(1000, (100,), device="cuda"),
    "randperm": lambda: torch.randperm(100, device="cuda"),
    "dropout": lambda: F.dropout(torch.ones(100, device="cuda")),
    "bernoulli_": lambda: torch.empty(100, device="cuda").bernoulli_(0.5),
    "bernoulli": lambda: torch.bernoulli(torch.full((100,), 0.5, device="cuda")),
    "uniform_": lambda: torch.empty(100, device="cuda").uniform_(2, 3),
    "normal_": lambda: torch.empty(100, device="cuda").normal_(2, 3),
    "exponential_": lambda: torch.empty(100, device="cuda").exponential_(),
    "geometric_": lambda: torch.empty(100, device="cuda").geometric_(0.1),
    "cauchy_": lambda: torch.empty(100, device="cuda").cauchy_(),
    "log_normal_": lambda: torch.empty(100, device="cuda").log_normal_(),
    "multinomial": lambda: torch.multinomial(torch.ones(100, device="cuda"), 20),
    "multinomial with replacement": lambda: torch.multinomial(torch.ones(100, device="cuda"), 20, True),
    "normal of tensors": lambda: torch.normal(torch.zeros(100, device="cuda"), torch.ones(100, device="cuda")),
    "poisson": lambda: torch.poisson(torch.full((100,), 5.0, device="cuda")),
    "gamma": lambda: torch._standard_gamma(torch.full((100,), 2.0, device="cuda")),
    "rrelu": lambda: F.rrelu(-torch.ones(100, device="cuda"), training=True),
    "bfloat16": lambda: torch.rand(100, device="cuda", dtype=torch.bfloat16),
    "float16": lambda: torch.randn(100, device="cuda", dtype=torch.float16),
}


@law
def draws_depend_on_seed_and_offset():
    """The same seed and offset give the same numbers, another offset and another seed give others, and the offset moves."""
    generator = torch.cuda.default_generators[0]
    for name, draw in DRAWS.items():
        torch.cuda.manual_seed(5)
        a, offset = draw(), generator.get_offset()
        assert offset > 0 and offset % 4 == 0, f"{name}: the offset is {offset}"
        b = draw()
        torch.cuda.manual_seed(5)
        c = draw()
        torch.cuda.manual_seed(6)
        d = draw()
        same(a, c, name)
        for other in (b, d):
            assert not torch.equal(a, other), f"{name} draws the same again"


@law
def draws_with_a_generator_of_ones_own():
    """A generator that is passed is the one that is used and moved."""
    g = torch.Generator("cuda")
    g.manual_seed(3)
    before = torch.cuda.default_generators[0].get_offset()
    a = torch.rand(50, device="cuda", generator=g)
    moved = g.get_offset()
    b = torch.rand(50, device="cuda", generator=g)
    assert moved > 0 and torch.cuda.default_generators[0].get_offset() == before
    differ(a, b)
    g.manual_seed(3)
    same(a, torch.rand(50, device="cuda", generator=g))


@law
def draws_look_like_their_distribution():
    """Means and deviations are those of the distribution."""
    torch.cuda.manual_seed(1)
    n = 20000
    for what, x, mean, deviation in (
        ("uniform", torch.rand(n, device="cuda"), 0.5, 12**-0.5),
        ("normal", torch.randn(n, device="cuda"), 0.0, 1.0),
        ("dropout", F.dropout(torch.ones(n, device="cuda"), 0.25), 1.0, (1 / 0.75 - 1) ** 0.5),
        ("exponential", torch.empty(n, device="cuda").exponential_(), 1.0, 1.0),
    ):
        assert abs(float(x.mean()) - mean) < 0.05 and abs(float(x.std()) - deviation) < 0.05, (what, float(x.mean()), float(x.std()))


@law
def the_hosts_generator_is_left_alone():
    """Nothing that the device draws moves the CPU's generator."""
    torch.manual_seed(9)
    state = torch.get_rng_state()
    for draw in DRAWS.values():
        draw()
    torch.cuda.synchronize()
    assert torch.equal(state, torch.get_rng_state())


def _dropping(seed):
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(16, 16), nn.Dropout(0.5), nn.ReLU(), nn.Linear(16, 4)).cuda()
    return model, torch.randn(8, 16, device="cuda", requires_grad=True)


@law
def a_recompute_that_restores_the_generator_is_equal():
    """torch.utils.checkpoint with preserve_rng_state gives the gradients of a run without it, and without it others."""
    from torch.utils.checkpoint import checkpoint

    def gradient(how):
        model, x = _dropping(4)
        torch.cuda.manual_seed(8)
        y = model(x) if how is None else checkpoint(model, x, use_reentrant=False, preserve_rng_state=how)
        y.square().sum().backward()
        return model[0].weight.grad

    plain = gradient(None)
    same(plain, gradient(True))
    differ(plain, gradient(False))


# ---- orders of work

@law
def a_missing_wait_shows_late():
    """A copy on a side stream that does not wait for what it copies is right at once and wrong late."""
    host = torch.zeros(4000, pin_memory=True)
    side = torch.cuda.Stream()
    x = torch.arange(4000.0, device="cuda")
    y = x * 2 + 1
    with torch.cuda.stream(side):
        host.copy_(y, non_blocking=True)
    side.synchronize()
    right = torch.equal(host, torch.arange(4000.0) * 2 + 1)
    if ORDER in ("once", "late"):
        assert right == (not LATE), f"the copy is {'right' if right else 'wrong'}"
    torch.cuda.synchronize()


@law
def a_wait_mends_it():
    """The same copy with a wait is right in every order."""
    host = torch.zeros(4000, pin_memory=True)
    side = torch.cuda.Stream()
    y = torch.arange(4000.0, device="cuda") * 2 + 1
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        host.copy_(y, non_blocking=True)
    y.record_stream(side)
    side.synchronize()
    same(host, torch.arange(4000.0) * 2 + 1)


def _used_on_the_side(record):
    side = torch.cuda.Stream()
    y = torch.full((4000,), 3.0, device="cuda")
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        out = y * 2
    if record:
        y.record_stream(side)
    del y
    z = torch.full((4000,), 100.0, device="cuda")  # takes y's memory, unless record_stream holds it
    torch.cuda.current_stream().synchronize()
    side.synchronize()
    del z
    return bool((out == 6).all())


@law
def a_missing_record_stream_shows_late():
    """Memory that a side stream still reads, freed without record_stream and taken anew, shows as wrong numbers late."""
    right = _used_on_the_side(False)
    if ORDER in ("once", "late"):
        assert right == (not LATE), f"the numbers are {'right' if right else 'wrong'}"
    assert _used_on_the_side(True)


@law
def host_memory_is_read_when_the_op_is_called():
    """A host number or tensor that an op takes may change as soon as the op returns."""
    x = torch.zeros(10, device="cuda")
    number = torch.tensor(5.0)
    y = x + number
    number.fill_(7)
    pageable = torch.ones(10)
    z = pageable.to("cuda", non_blocking=True)
    pageable.fill_(9)
    same(y, torch.full((10,), 5.0))
    same(z, torch.ones(10))


@law
def work_in_place_follows_the_order_of_calls():
    """Ops in place on one stream see what ops before them left."""
    x = torch.zeros(64, device="cuda")
    for i in range(20):
        x += i
        x.mul_(2) if i % 2 else x[::2].sub_(1)
    y = torch.zeros(64)
    for i in range(20):
        y += i
        y.mul_(2) if i % 2 else y[::2].sub_(1)
    same(x, y)


@refusal
def an_error_in_late_work_names_its_op():
    """What fails when its stream reaches it raises from the next op, and names the op that failed."""
    table = torch.zeros(4, 3, device="cuda")

    def bad():
        table.index_select(0, torch.tensor([9], device="cuda"))

    refused(bad, "index_select")


@law
def modes_of_the_waiting_thread_see_nothing():
    """Work that runs while somebody waits under a dispatch mode is not seen by that mode."""
    from torch.utils._python_dispatch import TorchDispatchMode

    seen = []

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, f, types, args=(), kwargs=None):
            seen.append((str(f), args[0].device.type if args and isinstance(args[0], torch.Tensor) else ""))
            return f(*args, **(kwargs or {}))

    x = torch.randn(5, 5, device="cuda")
    y = x @ x
    with Watch():
        z = y + 1
        torch.cuda.synchronize()
    assert [s for s, d in seen] == ["aten.add.Tensor"], seen
    same(z, x.cpu() @ x.cpu() + 1)


# ---- several devices, views, lazy bits, threads

@law
def two_devices_copy_to_each_other():
    """Copies between devices, also of other dtypes and strides, arrive; each device has its own streams."""
    if torch.cuda.device_count() < 2:
        return
    a = torch.arange(24.0, device="cuda:0").view(4, 6)
    same(a.to("cuda:1"), torch.arange(24.0).view(4, 6))
    same(a.t().to("cuda:1"), torch.arange(24.0).view(4, 6).t())
    same(a.to("cuda:1", torch.float64), torch.arange(24.0).view(4, 6).double())
    b = torch.ones(4, 6, device="cuda:1")
    b[:, ::2].copy_(a[:, ::2])
    c = (b * 2).to("cuda:0") + a
    want = torch.ones(4, 6)
    want[:, ::2] = torch.arange(24.0).view(4, 6)[:, ::2]
    same(c, want * 2 + torch.arange(24.0).view(4, 6))
    torch.cuda.manual_seed_all(3)
    same(torch.randn(5, device="cuda:0"), torch.randn(5, device="cuda:1"))


@law
def views_and_lazy_bits():
    """Strided views, conjugates and negatives compute as on the CPU."""
    for device in ("cpu", "cuda"):
        torch.manual_seed(0)
        c = torch.complex(torch.randn(4, 4), torch.randn(4, 4)).to(device)
        x = torch.randn(6, 8).to(device)
        out = [c.conj() @ c, c.conj().imag + 1, (c.t().conj() * 2).real, x[1::2, ::3] * 2, x.t()[2:5].contiguous(), x.expand(2, 6, 8).sum(0),
               torch.view_as_real(c.conj().resolve_conj()), x.unfold(1, 3, 2).mean(-1), c.abs(), torch.fft.fft(c).real]
        out = [t.detach().cpu().resolve_conj().resolve_neg() for t in out]
        if device == "cpu":
            want = out
    for a, b in zip(out, want):
        close(torch.view_as_real(a) if a.is_complex() else a, torch.view_as_real(b) if b.is_complex() else b)


@law
def numbers_promote_as_numbers():
    """An op with a Python number has the dtype that PyTorch's rules give it."""
    for x in (torch.arange(3), torch.tensor(3), torch.arange(3).to(torch.int8), torch.ones(3).half(), torch.tensor(2.0), torch.ones(2).bool()):
        for f in (lambda t: t * 2.5, lambda t: t + 1, lambda t: 2 - t.float(), lambda t: t == 1000, lambda t: 2**t.float(), lambda t: t * 2j,
                  lambda t: t.clamp(min=1), lambda t: torch.where(t > 0, t, 2.5), lambda t: t / 3):
            try:
                want = f(x)
            except RuntimeError:
                continue
            same(f(x.cuda()), want)


@law
def sizes_come_from_the_data():
    """nonzero, unique, masked selection and boolean indices give the sizes that the data has."""
    for device in ("cpu", "cuda"):
        torch.manual_seed(2)
        x = torch.randint(-3, 4, (40,)).to(device)
        y = torch.zeros(40).to(device)
        y[x > 0] = 5.0
        out = [x.nonzero(), x[x > 1], x.unique(), *x.unique(return_inverse=True, return_counts=True), torch.unique_consecutive(x), (x + 3).bincount(),
               x.masked_select(x < 0), torch.repeat_interleave(x, x.abs()), y, x.sort().values, x.float().topk(5).values, torch.where(x == 0)[0],
               x.view(8, 5).unique(dim=0), torch.tensor(torch.equal(x, x + 0)), x.float().histc(5), x.argsort(stable=True)]
        out = [t.detach().cpu() for t in out]
        if device == "cpu":
            want = out
    for a, b in zip(out, want):
        same(a, b)


# ---- training

def _train(device, optimizer, dtype=None, steps=4, **options):
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(12, 16), nn.LayerNorm(16), nn.GELU(), nn.Linear(16, 5)).to(device)
    x, y = torch.randn(10, 12).to(device), torch.randint(5, (10,)).to(device)
    opt = optimizer(model.parameters(), **options)
    for _ in range(steps):
        opt.zero_grad()
        F.cross_entropy(model(x), y).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
    return torch.cat([p.detach().flatten().cpu() for p in model.parameters()])


@law
def optimizers_give_the_cpus_numbers():
    """for-loop, foreach and fused optimizers end where the CPU's of the same kind do, to the bit where the formulas are the same."""
    O = torch.optim
    for optimizer, options in ((O.SGD, dict(lr=0.1, momentum=0.9)), (O.Adam, dict(lr=0.1)), (O.AdamW, dict(lr=0.1, weight_decay=0.1)),
                               (O.Adagrad, dict(lr=0.1)), (O.RMSprop, dict(lr=0.01)), (O.NAdam, dict(lr=0.1)), (O.Adamax, dict(lr=0.1))):
        want = _train("cpu", optimizer, foreach=False, **options)
        same(_train("cuda", optimizer, foreach=False, **options), want, optimizer.__name__)
        close(_train("cuda", optimizer, foreach=True, **options), want, 1e-4, optimizer.__name__ + " foreach")
        if "fused" in inspect.signature(optimizer).parameters:
            same(_train("cuda", optimizer, fused=True, **options), _train("cpu", optimizer, fused=True, **options), optimizer.__name__ + " fused")


@law
def mixed_precision_trains():
    """autocast with bfloat16, and with float16 and a GradScaler that skips a step with infinite gradients, follow float32 closely."""
    for dtype in (torch.bfloat16, torch.float16):
        for fused in (False, True):
            torch.manual_seed(1)
            model = nn.Sequential(nn.Linear(12, 16), nn.LayerNorm(16), nn.GELU(), nn.Linear(16, 5)).cuda()
            reference = copy.deepcopy(model).cpu()
            scaler = torch.amp.GradScaler("cuda", init_scale=2.0**40, enabled=dtype == torch.float16, growth_interval=3)
            opt = torch.optim.Adam(model.parameters(), lr=0.01, fused=fused)
            ref = torch.optim.Adam(reference.parameters(), lr=0.01)
            x, y = torch.randn(10, 12), torch.randint(5, (10,))
            taken = 0
            for _ in range(40):
                opt.zero_grad()
                with torch.autocast("cuda", dtype):
                    loss = F.cross_entropy(model(x.cuda()), y.cuda())
                scale = scaler.get_scale()
                scaler.scale(loss).backward()
                scaler.step(opt)
                scaler.update()
                if dtype == torch.bfloat16 or scaler.get_scale() >= scale:
                    taken += 1
                    ref.zero_grad()
                    F.cross_entropy(reference(x), y).backward()
                    ref.step()
            assert taken == 40 or dtype == torch.float16 and 5 < taken < 40, f"{dtype}: {taken} steps were taken"
            for p, q in zip(model.parameters(), reference.parameters()):
                close(p, q, 0.05, f"{dtype} fused={fused}")


@law
def half_precision_rounds_once():
    """float16 and bfloat16 compute in float32 and round once."""
    torch.manual_seed(0)
    a, b = torch.randn(64, 64), torch.randn(64, 64)
    for dtype in (torch.bfloat16, torch.float16):
        x, y = a.to(dtype), b.to(dtype)
        for f in (lambda p, q: p @ q, lambda p, q: p.softmax(1), lambda p, q: (p * q).sum(1) * 0 + p.sum(1), lambda p, q: torch.addmm(p, p, q)):
            same(f(x.cuda(), y.cuda()), f(x.float(), y.float()).to(dtype))
        same(F.softmax(x.cuda(), 1, dtype=torch.float32), F.softmax(x.float(), 1))
        same(F.log_softmax(x.cuda(), 1, dtype=torch.float32), F.log_softmax(x.float(), 1))


@law
def layers_give_the_cpus_numbers():
    """Layers and losses, forward and backward, agree with the CPU."""
    torch.manual_seed(0)
    image, text = torch.randn(4, 6, 12, 12), torch.randn(5, 4, 8)
    layers = {
        "convolution": (nn.Conv2d(6, 8, 3, padding=1), image), "strided": (nn.Conv2d(6, 8, 3, stride=2, bias=False), image),
        "dilated": (nn.Conv2d(6, 8, 3, dilation=2), image), "grouped": (nn.Conv2d(6, 6, 3, groups=3), image),
        "depthwise": (nn.Conv2d(6, 12, 3, groups=6), image), "transposed": (nn.ConvTranspose2d(6, 4, 3, stride=2, output_padding=1), image),
        "convolution 1d": (nn.Conv1d(4, 8, 3), text), "convolution 3d": (nn.Conv3d(6, 4, 2), image.view(1, 6, 4, 12, 12)),
        "batch norm": (nn.BatchNorm2d(6), image), "batch norm, evaluated": (nn.BatchNorm2d(6).eval(), image),
        "instance norm": (nn.InstanceNorm2d(6), image), "group norm": (nn.GroupNorm(3, 6), image), "layer norm": (nn.LayerNorm(8), text),
        "rms norm": (nn.RMSNorm(8), text), "max pool": (nn.MaxPool2d(3, 2), image), "average pool": (nn.AvgPool2d(3, 2), image),
        "adaptive pool": (nn.AdaptiveAvgPool2d(5), image), "adaptive max": (nn.AdaptiveMaxPool2d(5), image), "upsample": (nn.Upsample(scale_factor=2, mode="bilinear"), image),
        "nearest": (nn.Upsample(scale_factor=2), image), "lstm": (nn.LSTM(8, 6, 2, bidirectional=True), text), "gru": (nn.GRU(8, 6), text),
        "rnn": (nn.RNN(8, 6), text), "lstm without bias": (nn.LSTM(8, 6, bias=False), text), "attention": (nn.MultiheadAttention(8, 2), text),
        "encoder": (nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0), text), "pixel shuffle": (nn.PixelShuffle(2), torch.randn(2, 8, 4, 4)),
        "reflection pad": (nn.ReflectionPad2d(2), image), "log sigmoid": (nn.LogSigmoid(), text), "hard swish": (nn.Hardswish(), text),
    }
    recurrent = (nn.LSTM, nn.GRU, nn.RNN)
    for cudnn in (False, True):
        with torch.backends.cudnn.flags(enabled=cudnn):
            for name, (layer, x) in layers.items():
                if not (cudnn and isinstance(layer, recurrent)):  # refused, see below
                    _compare(f"{name}, cudnn={cudnn}", layer, x)


def _compare(name, layer, x):
    results = []
    for device in ("cpu", "cuda"):
        model, t = copy.deepcopy(layer).to(device), x.detach().clone().to(device).requires_grad_()
        out = model(t, t, t) if isinstance(layer, nn.MultiheadAttention) else model(t)
        y = out[0] if isinstance(out, tuple) else out
        y.mul(torch.linspace(0, 1, y.numel()).view(y.shape).to(device)).sum().backward()
        results.append([y, t.grad, *[p.grad for p in model.parameters()], *[b.float() for b in model.buffers()]])
    assert len(results[0]) == len(results[1])
    for a, b in zip(*results):
        close(b, a, 1e-4, name)


@law
def losses_give_the_cpus_numbers():
    """Losses and embeddings agree with the CPU, forward and backward."""
    torch.manual_seed(0)
    logits, target = torch.randn(12, 7), torch.randint(7, (12,))
    tokens = torch.randint(20, (6, 3))
    cases = {
        "cross entropy": lambda d, t: F.cross_entropy(t, target.to(d), label_smoothing=0.1), "nll": lambda d, t: F.nll_loss(t.log_softmax(1), target.to(d), ignore_index=2),
        "mse": lambda d, t: F.mse_loss(t, logits.to(d) * 2), "smooth l1": lambda d, t: F.smooth_l1_loss(t, t.detach() + 1.5), "kl": lambda d, t: F.kl_div(t.log_softmax(1), logits.to(d).softmax(1), reduction="batchmean"),
        "bce": lambda d, t: F.binary_cross_entropy_with_logits(t, logits.to(d).sigmoid()), "hinge": lambda d, t: F.multi_margin_loss(t, target.to(d)),
        "ctc for cudnn": lambda d, t: F.ctc_loss(t.view(12, 1, 7).log_softmax(2), *(torch.tensor(x, dtype=torch.int32, device=d) for x in ([1, 2, 3], [12], [3]))),
        "grid": lambda d, t: F.grid_sample(t.view(1, 3, 4, 7), F.affine_grid(torch.eye(2, 3, device=d).view(1, 2, 3) * 0.8 + t.sum() * 0.01, [1, 3, 4, 7], align_corners=True), align_corners=True).square().sum(),
        "ctc": lambda d, t: F.ctc_loss(t.view(12, 1, 7).log_softmax(2), torch.tensor([[1, 2, 3]], device=d), torch.tensor([12]), torch.tensor([3])),
        "embedding": lambda d, t: F.embedding(tokens.to(d) % 12, t).square().sum(), "embedding bag": lambda d, t: F.embedding_bag(tokens.to(d) % 12, t, mode="mean").square().sum(),
        "index add": lambda d, t: t.new_zeros(5, 7).index_add(0, (target % 5).to(d), t).square().sum(), "gather": lambda d, t: t.gather(1, target.view(-1, 1).to(d)).sum(),
        "scatter": lambda d, t: torch.zeros(12, 7, device=d).scatter_add(1, target.view(-1, 1).expand(12, 7).to(d), t).square().sum(), "index": lambda d, t: t[target.to(d)].square().sum(),
        "cumulative": lambda d, t: (t.cumsum(0).tanh() + t.sigmoid().cumprod(1) + t.cummax(0).values + t.logcumsumexp(1)).sum(), "norm": lambda d, t: torch.linalg.norm(t) + t.norm(1, dim=0).sum(),
        "solve": lambda d, t: torch.linalg.solve(t[:7] @ t[:7].t() + 9 * torch.eye(7, device=d), t[:7]).square().sum(), "svd": lambda d, t: torch.linalg.svdvals(t).sum(),
        "cholesky": lambda d, t: torch.linalg.cholesky(t[:7] @ t[:7].t() + 9 * torch.eye(7, device=d)).sum(), "einsum": lambda d, t: torch.einsum("ij,kj->ik", t, t).tanh().sum(),
    }
    for cudnn in (False, True):
        with torch.backends.cudnn.flags(enabled=cudnn):
            for name, f in cases.items():
                grads = []
                for device in ("cpu", "cuda"):
                    t = logits.clone().to(device).requires_grad_()
                    loss = f(device, t)
                    loss.backward()
                    grads.append((loss, t.grad))
                for a, b in zip(*grads):
                    close(b, a, 1e-4, f"{name}, cudnn={cudnn}")


@law
def synchronised_batch_norm_is_batch_norm():
    """The ops of SyncBatchNorm, with the batch in two halves, give what batch norm gives for the whole."""
    torch.manual_seed(0)
    x, g = torch.randn(8, 3, 5, 5), torch.randn(8, 3, 5, 5)
    bn = nn.BatchNorm2d(3)
    nn.init.normal_(bn.weight)
    t = x.clone().requires_grad_()
    y = bn(t)
    y.backward(g)
    weight, bias = bn.weight.detach().cuda(), bn.bias.detach().cuda()
    halves, grads = x.cuda().chunk(2), g.cuda().chunk(2)
    stats = [torch.batch_norm_stats(h, bn.eps) for h in halves]
    mean, invstd = torch.stack([s[0] for s in stats]), torch.stack([s[1] for s in stats])
    rm, rv = torch.zeros(3, device="cuda"), torch.ones(3, device="cuda")
    counts = torch.full((2,), 100.0, device="cuda")
    mean, invstd = torch.batch_norm_gather_stats_with_counts(halves[0], mean, invstd, rm, rv, bn.momentum, bn.eps, counts)
    close(torch.cat([torch.batch_norm_elemt(h, weight, bias, mean, invstd, bn.eps) for h in halves]), y, 1e-4)
    close(rm, bn.running_mean, 1e-4)
    close(rv, bn.running_var, 1e-4)
    sums = [torch.batch_norm_backward_reduce(d, h, mean, invstd, weight, True, True, True) for d, h in zip(grads, halves)]
    total, product = sums[0][0] + sums[1][0], sums[0][1] + sums[1][1]
    ints = torch.full((2,), 100, dtype=torch.int32, device="cuda")
    close(torch.cat([torch.batch_norm_backward_elemt(d, h, mean, invstd, weight, total, product, ints) for d, h in zip(grads, halves)]), t.grad, 1e-4)
    close(sums[0][2] + sums[1][2], bn.weight.grad, 1e-4)
    close(sums[0][3] + sums[1][3], bn.bias.grad, 1e-4)


# ---- attention

BACKENDS = {"flash": SDPBackend.FLASH_ATTENTION, "efficient": SDPBackend.EFFICIENT_ATTENTION}


def _attend(q, k, v, backend, **options):
    """Run attention forward and backward; return the result and the three gradients in float64 on the CPU."""
    leaves = [t.detach().clone().requires_grad_() for t in (q, k, v)]
    with sdpa_kernel(backend):
        y = F.scaled_dot_product_attention(*leaves, **options)
    y.backward(torch.linspace(-1, 1, y.numel(), dtype=torch.float64).view(y.shape).to(y.device, y.dtype))
    return [t.detach().cpu().double() for t in (y, *[t.grad for t in leaves])]


@law
def attention_gives_the_formulas_numbers():
    """Flash and efficient attention, in float16, bfloat16 and float32, causal or not, give what the formula gives in float64."""
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, 4, 24, 16) for _ in range(3))
    for name, backend in BACKENDS.items():
        for dtype, tolerance in ((torch.float32, 1e-5), (torch.bfloat16, 0.05), (torch.float16, 0.01)):
            if name == "flash" and dtype == torch.float32:
                continue
            for options in ({}, {"is_causal": True}, {"scale": 0.5}):
                qkv = [t.to(dtype) for t in (q, k, v)]
                want = _attend(*[t.double() for t in qkv], SDPBackend.MATH, **options)
                got = _attend(*[t.cuda() for t in qkv], backend, **options)
                for a, b in zip(got, want):
                    close(a, b, tolerance, f"{name} {dtype} {options}")


@law
def attention_with_a_bias():
    """Efficient attention adds a bias, and gives its gradient."""
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, 4, 24, 16) for _ in range(3))
    for wants in (False, True):
        grads = []
        for device, dtype, backend in (("cpu", torch.float64, SDPBackend.MATH), ("cuda", torch.float32, SDPBackend.EFFICIENT_ATTENTION)):
            torch.manual_seed(1)
            bias = torch.randn(2, 4, 24, 24).to(device, dtype).requires_grad_(wants)
            found = _attend(*[t.to(device, dtype) for t in (q, k, v)], backend, attn_mask=bias)
            grads.append(found + ([bias.grad] if wants else []))
        for a, b in zip(*grads):
            close(b, a, 1e-5, f"bias that wants a gradient: {wants}")


@law
def attention_with_fewer_key_heads():
    """Flash attention with grouped heads gives what repeated heads give."""
    torch.manual_seed(0)
    q, k, v = torch.randn(2, 4, 24, 16), torch.randn(2, 2, 24, 16), torch.randn(2, 2, 24, 16)
    qkv = [t.half() for t in (q, k, v)]
    want = _attend(*[t.double() for t in qkv], SDPBackend.MATH, enable_gqa=True)
    for a, b in zip(_attend(*[t.cuda() for t in qkv], SDPBackend.FLASH_ATTENTION, enable_gqa=True), want):
        close(a, b, 0.01)


@law
def attentions_dropout_is_the_same_in_the_backward_pass():
    """With dropout, the gradient of attention is that of the mask that the forward pass drew: found by making each weight visible."""
    n = 16
    for name, backend in BACKENDS.items():
        torch.cuda.manual_seed(11)
        # With v the identity, the result is the dropped weights themselves, and the gradient of v is their transpose times the gradient.
        dtype = torch.float16 if name == "flash" else torch.float32
        q = torch.randn(1, 1, n, n, device="cuda", dtype=dtype)
        k = torch.randn(1, 1, n, n, device="cuda", dtype=dtype)
        v = torch.eye(n, device="cuda", dtype=dtype).view(1, 1, n, n)
        y, dq, dk, dv = _attend(q, k, v, backend, dropout_p=0.5)
        assert 0.2 < float((y == 0).double().mean()) < 0.8, "nothing was dropped"
        qd, kd, vd = (t.cpu().double().requires_grad_() for t in (q, k, v))
        weights = (qd @ kd.transpose(-2, -1) * n**-0.5).softmax(-1)
        keep = (y != 0).double() * 2
        out = weights * keep @ vd
        out.backward(torch.linspace(-1, 1, n * n, dtype=torch.float64).view(1, 1, n, n).to(dtype).double())
        for a, b in zip((y, dq, dk, dv), (out, qd.grad, kd.grad, vd.grad)):
            close(a, b, 0.02 if name == "flash" else 1e-5, name)


# ---- CUDA graphs

@law
def graphs_compute_at_replay():
    """A captured step computes at each replay from what its inputs hold then, and nothing at capture."""
    x, y = torch.zeros(8, device="cuda"), torch.zeros(8, device="cuda")
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        y.copy_(x * 2 + 1)
    torch.cuda.current_stream().wait_stream(side)
    y.zero_()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y.add_(x * 2 + 1)
    same(y, torch.zeros(8))
    for i in range(1, 4):
        x.fill_(i)
        graph.replay()
    same(y, torch.full((8,), 3.0 + 5 + 7))


@law
def graphs_draw_anew_at_each_replay():
    """Dropout in a graph draws anew at each replay, and the same after the generator was set back."""
    x, y = torch.ones(256, device="cuda"), torch.zeros(256, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y.copy_(F.dropout(x))
        z = F.dropout(x)
    torch.cuda.manual_seed(5)
    graph.replay()
    a, first = y.cpu(), z.cpu()
    graph.replay()
    b = y.cpu()
    torch.cuda.manual_seed(5)
    graph.replay()
    same(y, a)
    differ(a, b)
    differ(a, first)


# ---- refusals

@refusal
def kernels_outside_of_ops_are_refused():
    """A kernel that is launched outside of an op that we compute fails, and is named."""
    import ctypes

    name = b"void sum_of_all<float>(float*)"
    runtime, stub = ctypes.CDLL(None), ctypes.c_int()
    runtime.__getattr__("__cudaRegisterFunction")(None, ctypes.byref(stub), None, name, 0, None, None, None, None, None)

    class Dimensions(ctypes.Structure):
        _fields_ = [("x", ctypes.c_uint), ("y", ctypes.c_uint), ("z", ctypes.c_uint)]

    one = Dimensions(1, 1, 1)
    assert runtime.cudaLaunchKernel(ctypes.byref(stub), one, one, None, ctypes.c_size_t(0), None) == 801
    assert runtime.cudaGetLastError() == 801


@refusal
def sparse_tensors_are_refused():
    """What computes with sparse tensors raises and names the op."""
    i = torch.tensor([[0, 1], [1, 0]], device="cuda")
    s = torch.sparse_coo_tensor(i, torch.ones(2, device="cuda"), (2, 2))
    refused(lambda: torch.sparse.mm(s, torch.ones(2, 2, device="cuda")), "not computed on the stand-in GPU", "sparse")
    e = nn.Embedding(5, 3, sparse=True).cuda()
    e(torch.tensor([1, 2], device="cuda")).sum().backward()
    refused(lambda: torch.optim.SparseAdam(e.parameters()).step(), "not computed on the stand-in GPU")


@refusal
def compiled_code_is_refused():
    """torch.compile with inductor raises a sentence that says why, and backends that run ops work."""
    refused(lambda: torch.compile(lambda t: t.sin() + t.cos())(torch.ones(8, device="cuda")), "Triton kernels cannot run on the stand-in GPU")
    f = torch.compile(lambda t: t.sin() + t.cos(), backend="aot_eager")
    same(f(torch.ones(8, device="cuda")), torch.ones(8).sin() + torch.ones(8).cos())


@refusal
def cudnns_recurrent_networks_are_refused():
    """What is refused says what to do instead."""
    def rnn():
        with torch.backends.cudnn.flags(enabled=True):
            torch._cudnn_rnn(*[torch.ones(1, device="cuda")], [torch.ones(1, device="cuda")], 4, None, torch.ones(1, device="cuda"), None, 2, 1, 0, 1, False,
                             0.0, False, False, [], None)

    refused(rnn, "_cudnn_rnn is not computed", "torch.backends.cudnn.enabled = False")


def main():
    groups = {"laws": list(laws), "refusals": list(refusals)}
    names = [n for a in sys.argv[2:] for n in groups.get(a, [a])]
    failed = 0
    for name in names:
        try:
            (laws | refusals)[name]()
            torch.cuda.synchronize()
            print(f"ok {name}", flush=True)
        except BaseException as error:
            failed += 1
            print(f"FAIL {name}: {type(error).__name__}: {error}".replace("\n", " "), flush=True)
            traceback.print_exc(limit=-4, file=sys.stderr)
            report._late_error = None
    print(f"{len(names) - failed} of {len(names)} laws hold", flush=True)


if __name__ == "__main__":
    main()
