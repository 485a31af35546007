"""Laws of tensors: several devices, views, lazy bits, promotion of numbers, sizes that depend on data."""

import torch


from laws import close, law, same


@law
def two_devices_copy_to_each_other():
    """Copies between devices arrive, even with other dtypes and strides; each device has its own streams."""
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
    """Strided views, conjugates and negatives give the CPU's results."""
    for device in ("cpu", "cuda"):
        torch.manual_seed(0)
        c = torch.complex(torch.randn(4, 4), torch.randn(4, 4)).to(device)
        x = torch.randn(6, 8).to(device)
        out = [
            c.conj() @ c,
            c.conj().imag + 1,
            (c.t().conj() * 2).real,
            x[1::2, ::3] * 2,
            x.t()[2:5].contiguous(),
            x.expand(2, 6, 8).sum(0),
            torch.view_as_real(c.conj().resolve_conj()),
            x.unfold(1, 3, 2).mean(-1),
            c.abs(),
            torch.fft.fft(c).real,
        ]
        out = [t.detach().cpu().resolve_conj().resolve_neg() for t in out]
        if device == "cpu":
            want = out
    for a, b in zip(out, want):
        close(torch.view_as_real(a) if a.is_complex() else a, torch.view_as_real(b) if b.is_complex() else b)


@law
def numbers_promote_as_numbers():
    """An op with a Python number has the dtype that PyTorch's rules give it."""
    for x in (
        torch.arange(3),
        torch.tensor(3),
        torch.arange(3).to(torch.int8),
        torch.ones(3).half(),
        torch.tensor(2.0),
        torch.ones(2).bool(),
    ):
        for f in (
            lambda t: t * 2.5,
            lambda t: t + 1,
            lambda t: 2 - t.float(),
            lambda t: t == 1000,
            lambda t: 2 ** t.float(),
            lambda t: t * 2j,
            lambda t: t.clamp(min=1),
            lambda t: torch.where(t > 0, t, 2.5),
            lambda t: t / 3,
        ):
            try:
                want = f(x)
            except RuntimeError:
                continue
            same(f(x.cuda()), want)


@law
def sizes_come_from_the_data():
    """nonzero, unique, masked selection and boolean indices return sizes that follow from the data."""
    for device in ("cpu", "cuda"):
        torch.manual_seed(2)
        x = torch.randint(-3, 4, (40,)).to(device)
        y = torch.zeros(40).to(device)
        y[x > 0] = 5.0
        out = [
            x.nonzero(),
            x[x > 1],
            x.unique(),
            *x.unique(return_inverse=True, return_counts=True),
            torch.unique_consecutive(x),
            (x + 3).bincount(),
            x.masked_select(x < 0),
            torch.repeat_interleave(x, x.abs()),
            y,
            x.sort().values,
            x.float().topk(5).values,
            torch.where(x == 0)[0],
            x.view(8, 5).unique(dim=0),
            torch.tensor(torch.equal(x, x + 0)),
            x.float().histc(5),
            x.argsort(stable=True),
        ]
        out = [t.detach().cpu() for t in out]
        if device == "cpu":
            want = out
    for a, b in zip(out, want):
        same(a, b)
