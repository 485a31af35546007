"""Laws of training: optimizers, mixed precision, layers and losses."""

import copy
import inspect

import torch
from torch import nn
from torch.nn import functional as F


from laws import close, law, same


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
    """for-loop, foreach and fused optimizers end with the same parameters as the CPU's of the same kind, to
    the bit if the formulas are the same.
    """
    O = torch.optim
    for optimizer, options in (
        (O.SGD, dict(lr=0.1, momentum=0.9)),
        (O.Adam, dict(lr=0.1)),
        (O.AdamW, dict(lr=0.1, weight_decay=0.1)),
        (O.Adagrad, dict(lr=0.1)),
        (O.RMSprop, dict(lr=0.01)),
        (O.NAdam, dict(lr=0.1)),
        (O.Adamax, dict(lr=0.1)),
    ):
        want = _train("cpu", optimizer, foreach=False, **options)
        same(_train("cuda", optimizer, foreach=False, **options), want, optimizer.__name__)
        close(_train("cuda", optimizer, foreach=True, **options), want, 1e-4, optimizer.__name__ + " foreach")
        if "fused" in inspect.signature(optimizer).parameters:
            same(
                _train("cuda", optimizer, fused=True, **options),
                _train("cpu", optimizer, fused=True, **options),
                optimizer.__name__ + " fused",
            )


@law
def mixed_precision_trains():
    """Training with autocast stays close to float32: with bfloat16, and with float16 and a GradScaler that
    skips a step with infinite gradients.
    """
    for dtype in (torch.bfloat16, torch.float16):
        for fused in (False, True):
            torch.manual_seed(1)
            model = nn.Sequential(nn.Linear(12, 16), nn.LayerNorm(16), nn.GELU(), nn.Linear(16, 5)).cuda()
            reference = copy.deepcopy(model).cpu()
            scaler = torch.amp.GradScaler(
                "cuda", init_scale=2.0**40, enabled=dtype == torch.float16, growth_interval=3
            )
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
            assert (
                taken == 40 or dtype == torch.float16 and 5 < taken < 40
            ), f"{dtype}: {taken} steps were taken"
            for p, q in zip(model.parameters(), reference.parameters()):
                close(p, q, 0.05, f"{dtype} fused={fused}")


@law
def half_precision_rounds_once():
    """float16 and bfloat16 compute in float32 and round once."""
    torch.manual_seed(0)
    a, b = torch.randn(64, 64), torch.randn(64, 64)
    for dtype in (torch.bfloat16, torch.float16):
        x, y = a.to(dtype), b.to(dtype)
        for f in (
            lambda p, q: p @ q,
            lambda p, q: p.softmax(1),
            lambda p, q: (p * q).sum(1) * 0 + p.sum(1),
            lambda p, q: torch.addmm(p, p, q),
        ):
            same(f(x.cuda(), y.cuda()), f(x.float(), y.float()).to(dtype))
        same(F.softmax(x.cuda(), 1, dtype=torch.float32), F.softmax(x.float(), 1))
        same(F.log_softmax(x.cuda(), 1, dtype=torch.float32), F.log_softmax(x.float(), 1))


@law
def layers_give_the_cpus_numbers():
    """Layers and losses, forward and backward, agree with the CPU."""
    torch.manual_seed(0)
    image, text = torch.randn(4, 6, 12, 12), torch.randn(5, 4, 8)
    layers = {
        "convolution": (nn.Conv2d(6, 8, 3, padding=1), image),
        "strided": (nn.Conv2d(6, 8, 3, stride=2, bias=False), image),
        "dilated": (nn.Conv2d(6, 8, 3, dilation=2), image),
        "grouped": (nn.Conv2d(6, 6, 3, groups=3), image),
        "depthwise": (nn.Conv2d(6, 12, 3, groups=6), image),
        "transposed": (nn.ConvTranspose2d(6, 4, 3, stride=2, output_padding=1), image),
        "convolution 1d": (nn.Conv1d(4, 8, 3), text),
        "convolution 3d": (nn.Conv3d(6, 4, 2), image.view(1, 6, 4, 12, 12)),
        "batch norm": (nn.BatchNorm2d(6), image),
        "batch norm, evaluated": (nn.BatchNorm2d(6).eval(), image),
        "instance norm": (nn.InstanceNorm2d(6), image),
        "group norm": (nn.GroupNorm(3, 6), image),
        "layer norm": (nn.LayerNorm(8), text),
        "rms norm": (nn.RMSNorm(8), text),
        "max pool": (nn.MaxPool2d(3, 2), image),
        "average pool": (nn.AvgPool2d(3, 2), image),
        "adaptive pool": (nn.AdaptiveAvgPool2d(5), image),
        "adaptive max": (nn.AdaptiveMaxPool2d(5), image),
        "upsample": (nn.Upsample(scale_factor=2, mode="bilinear"), image),
        "nearest": (nn.Upsample(scale_factor=2), image),
        "lstm": (nn.LSTM(8, 6, 2, bidirectional=True), text),
        "gru": (nn.GRU(8, 6), text),
        "rnn": (nn.RNN(8, 6), text),
        "rnn with relu": (nn.RNN(8, 6, 2, nonlinearity="relu", batch_first=True), text),
        "lstm without bias": (nn.LSTM(8, 6, bias=False), text),
        "attention": (nn.MultiheadAttention(8, 2), text),
        "encoder": (nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0), text),
        "pixel shuffle": (nn.PixelShuffle(2), torch.randn(2, 8, 4, 4)),
        "reflection pad": (nn.ReflectionPad2d(2), image),
        "log sigmoid": (nn.LogSigmoid(), text),
        "hard swish": (nn.Hardswish(), text),
    }
    for cudnn in (False, True):
        with torch.backends.cudnn.flags(enabled=cudnn):
            for name, (layer, x) in layers.items():
                _compare(f"{name}, cudnn={cudnn}", layer, x)


def _compare(name, layer, x):
    results = []
    for device in ("cpu", "cuda"):
        model, t = copy.deepcopy(layer).to(device), x.detach().clone().to(device).requires_grad_()
        out = model(t, t, t) if isinstance(layer, nn.MultiheadAttention) else model(t)
        y = out[0] if isinstance(out, tuple) else out
        y.mul(torch.linspace(0, 1, y.numel()).view(y.shape).to(device)).sum().backward()
        results.append(
            [y, t.grad, *[p.grad for p in model.parameters()], *[b.float() for b in model.buffers()]]
        )
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
        "cross entropy": lambda d, t: F.cross_entropy(t, target.to(d), label_smoothing=0.1),
        "nll": lambda d, t: F.nll_loss(t.log_softmax(1), target.to(d), ignore_index=2),
        "mse": lambda d, t: F.mse_loss(t, logits.to(d) * 2),
        "smooth l1": lambda d, t: F.smooth_l1_loss(t, t.detach() + 1.5),
        "kl": lambda d, t: F.kl_div(t.log_softmax(1), logits.to(d).softmax(1), reduction="batchmean"),
        "bce": lambda d, t: F.binary_cross_entropy_with_logits(t, logits.to(d).sigmoid()),
        "hinge": lambda d, t: F.multi_margin_loss(t, target.to(d)),
        "ctc for cudnn": lambda d, t: F.ctc_loss(
            t.view(12, 1, 7).log_softmax(2),
            *(torch.tensor(x, dtype=torch.int32, device=d) for x in ([1, 2, 3], [12], [3])),
        ),
        "grid": lambda d, t: F.grid_sample(
            t.view(1, 3, 4, 7),
            F.affine_grid(
                torch.eye(2, 3, device=d).view(1, 2, 3) * 0.8 + t.sum() * 0.01,
                [1, 3, 4, 7],
                align_corners=True,
            ),
            align_corners=True,
        )
        .square()
        .sum(),
        "ctc": lambda d, t: F.ctc_loss(
            t.view(12, 1, 7).log_softmax(2),
            torch.tensor([[1, 2, 3]], device=d),
            torch.tensor([12]),
            torch.tensor([3]),
        ),
        "embedding": lambda d, t: F.embedding(tokens.to(d) % 12, t).square().sum(),
        "embedding bag": lambda d, t: F.embedding_bag(tokens.to(d) % 12, t, mode="mean").square().sum(),
        "index add": lambda d, t: t.new_zeros(5, 7).index_add(0, (target % 5).to(d), t).square().sum(),
        "gather": lambda d, t: t.gather(1, target.view(-1, 1).to(d)).sum(),
        "scatter": lambda d, t: torch.zeros(12, 7, device=d)
        .scatter_add(1, target.view(-1, 1).expand(12, 7).to(d), t)
        .square()
        .sum(),
        "index": lambda d, t: t[target.to(d)].square().sum(),
        "cumulative": lambda d, t: (
            t.cumsum(0).tanh() + t.sigmoid().cumprod(1) + t.cummax(0).values + t.logcumsumexp(1)
        ).sum(),
        "norm": lambda d, t: torch.linalg.norm(t) + t.norm(1, dim=0).sum(),
        "solve": lambda d, t: torch.linalg.solve(t[:7] @ t[:7].t() + 9 * torch.eye(7, device=d), t[:7])
        .square()
        .sum(),
        "svd": lambda d, t: torch.linalg.svdvals(t).sum(),
        "cholesky": lambda d, t: torch.linalg.cholesky(t[:7] @ t[:7].t() + 9 * torch.eye(7, device=d)).sum(),
        "einsum": lambda d, t: torch.einsum("ij,kj->ik", t, t).tanh().sum(),
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
    """The ops of SyncBatchNorm on two halves of a batch give what batch norm gives for the whole batch."""
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
    mean, invstd = torch.batch_norm_gather_stats_with_counts(
        halves[0], mean, invstd, rm, rv, bn.momentum, bn.eps, counts
    )
    close(torch.cat([torch.batch_norm_elemt(h, weight, bias, mean, invstd, bn.eps) for h in halves]), y, 1e-4)
    close(rm, bn.running_mean, 1e-4)
    close(rv, bn.running_var, 1e-4)
    sums = [
        torch.batch_norm_backward_reduce(d, h, mean, invstd, weight, True, True, True)
        for d, h in zip(grads, halves)
    ]
    total, product = sums[0][0] + sums[1][0], sums[0][1] + sums[1][1]
    ints = torch.full((2,), 100, dtype=torch.int32, device="cuda")
    close(
        torch.cat(
            [
                torch.batch_norm_backward_elemt(d, h, mean, invstd, weight, total, product, ints)
                for d, h in zip(grads, halves)
            ]
        ),
        t.grad,
        1e-4,
    )
    close(sums[0][2] + sums[1][2], bn.weight.grad, 1e-4)
    close(sums[0][3] + sums[1][3], bn.bias.grad, 1e-4)


@law
def recurrent_networks_take_packed_sequences():
    """Packed sequences of several lengths, and gradients of the last states, agree with the CPU."""
    torch.manual_seed(0)
    x, lengths = torch.randn(7, 3, 8), torch.tensor([7, 5, 2])
    for cudnn in (False, True):
        for layer in (nn.LSTM(8, 6), nn.GRU(8, 6, 2)):
            results = []
            for device in ("cpu", "cuda"):
                model, t = copy.deepcopy(layer).to(device), x.clone().to(device).requires_grad_()
                with torch.backends.cudnn.flags(enabled=cudnn):
                    out, states = model(nn.utils.rnn.pack_padded_sequence(t, lengths))
                    h = states[0] if isinstance(states, tuple) else states
                    (out.data.square().sum() + h.tanh().sum()).backward()
                results.append([out.data, h, t.grad, *[p.grad for p in model.parameters()]])
            for a, b in zip(*results):
                close(b, a, 1e-4, f"{type(layer).__name__}, cudnn={cudnn}")


@law
def deterministic_algorithms_compute_once():
    """If deterministic algorithms make PyTorch use other ops, those are done once, not twice."""
    torch.manual_seed(0)
    x, i, values = torch.randn(6, 4), torch.tensor([0, 2, 2, 5]), torch.randn(4, 4)
    cases = {
        "index_add": lambda t, i, v: t.index_add(0, i, v),
        "index_put": lambda t, i, v: t.index_put((i,), v, accumulate=True),
        "index_copy": lambda t, i, v: t.index_copy(0, i, v),
        "scatter_add": lambda t, i, v: t.scatter_add(0, i.view(-1, 1).expand(4, 4), v),
        "cumsum": lambda t, i, v: t.cumsum(0),
        "index": lambda t, i, v: t[i],
        "take": lambda t, i, v: t.take(i),
        "embedding": lambda t, i, v: F.embedding(i, t),
        "interpolation": lambda t, i, v: F.interpolate(t.view(1, 1, 6, 4), scale_factor=2, mode="bilinear"),
        "padding": lambda t, i, v: F.pad(t.view(1, 1, 6, 4), (1, 1, 1, 1), mode="reflect"),
    }
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        for name, f in cases.items():
            grads = []
            for device in ("cpu", "cuda"):
                t, v = x.clone().to(device).requires_grad_(), values.clone().to(device).requires_grad_()
                y = f(t, i.to(device), v)
                y.square().sum().backward()
                grads.append([g for g in (y, t.grad, v.grad) if g is not None])
            for a, b in zip(*grads):
                close(b, a, 1e-5, name)
    finally:
        torch.use_deterministic_algorithms(False)
