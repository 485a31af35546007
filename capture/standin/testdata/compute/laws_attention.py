"""Laws of fused attention."""

import torch
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from standin_compute import report

from laws import close, law

BACKENDS = {"flash": SDPBackend.FLASH_ATTENTION, "efficient": SDPBackend.EFFICIENT_ATTENTION}
OPS = {b: f"aten::_scaled_dot_product_{name}_attention" for name, b in BACKENDS.items()}


def _attend(q, k, v, backend, **options):
    """Run attention forward and backward; return the result and the three gradients in float64 on the CPU."""
    before = report.computed.copy()
    leaves = [t.detach().clone().requires_grad_() for t in (q, k, v)]
    with sdpa_kernel(backend):
        y = F.scaled_dot_product_attention(*leaves, **options)
    y.backward(torch.linspace(-1, 1, y.numel(), dtype=torch.float64).view(y.shape).to(y.device, y.dtype))
    torch.cuda.synchronize()
    if y.is_cuda:  # check that no other kernel was chosen
        for op in (OPS[backend], OPS[backend] + "_backward"):
            assert report.computed[op] == before[op] + 1, f"{op} was not computed"
    return [t.detach().cpu().double() for t in (y, *[t.grad for t in leaves])]


@law
def attention_gives_the_formulas_numbers():
    """Flash and efficient attention, in float16, bfloat16 and float32, causal or not, give what the formula
    gives in float64.
    """
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
        for device, dtype, backend in (
            ("cpu", torch.float64, SDPBackend.MATH),
            ("cuda", torch.float32, SDPBackend.EFFICIENT_ATTENTION),
        ):
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
    """With dropout, the gradient of attention uses the mask that the forward pass drew; we find the mask by
    making each weight visible.
    """
    n = 16
    for name, backend in BACKENDS.items():
        torch.cuda.manual_seed(11)
        # With v the identity, the result is the dropped weights themselves, and the gradient of v is their
        # transpose times the gradient.
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
