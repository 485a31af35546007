//go:build standin

package estimate_test

import (
	"slices"
	"testing"

	"github.com/gmemtop/gmemtop/capture/pytorch/estimate"
	"github.com/gmemtop/gmemtop/traces"
)

// large are the sizes of a trace's allocations of at least so many bytes, in their order, rounded up to 512.
func large(tr *traces.Trace, least int64) (sizes []int64) {
	for e := range tr.Events.Len() {
		if ev := tr.Events.At(e); ev.Action == traces.Alloc && ev.Size >= least {
			sizes = append(sizes, (ev.Size+511)/512*512)
		}
	}
	return sizes
}

// beside checks that a script allocates the same blocks of at least so many bytes under both allocators, and
// that there are so many of them.
func beside(t *testing.T, script string, least int64, blocks int) {
	t.Helper()
	p, said := one(t, estimate.RealOptions{Card: "h100"}, script)
	r, modelled, err := program(t, estimate.Options{}, script)
	if err != nil {
		t.Fatalf("%v\n%s", err, modelled)
	}
	got, want := large(r.Trace, least), large(p.Trace, least)
	if len(want) < blocks || !slices.Equal(got, want) {
		t.Errorf("with fake tensors the blocks are\n%v, with PyTorch's own allocator\n%v\n%s", got, want,
			said)
	}
}

// TestQuickModelAllocatesAsReal where gradients meet: fresh ones, ones that something else holds, and views.
func TestQuickModelAllocatesAsReal(t *testing.T) {
	beside(t, `
import torch, torch.nn as nn
body = nn.ModuleList([nn.Conv2d(16, 16, 3, padding=1) for _ in range(4)]).cuda()
optimizer = torch.optim.SGD(body.parameters(), lr=0.1)
while True:
    x = torch.randn(8, 16, 64, 64, device="cuda", requires_grad=True)
    y = x.square()
    for layer in body: y = y + layer(y).relu()
    held = []
    y.register_hook(held.append)
    z = y.flatten(1)
    (z.sin() * z + z.view(8, 16, -1).transpose(1, 2).cos().reshape(8, -1)).sum().backward()
    optimizer.step(); optimizer.zero_grad()
`, 1<<20, 30)
}

// TestQuickModelKnowsReductions along each dimension and all, of each width of numbers.
func TestQuickModelKnowsReductions(t *testing.T) {
	beside(t, `
import torch
for dtype in (torch.float32, torch.bfloat16, torch.float64, torch.int64):
    for shape in ((6304, 768), (100000, 10), (3, 200000), (513, 7, 1025), (64, 16, 56, 56), (5000, 5001)):
        x = torch.ones(shape, dtype=dtype, device="cuda")
        for dim in (0, 1, -1, (0, 1), tuple(range(len(shape)))[1:], None):
            x.sum() if dim is None else x.sum(dim, keepdim=dim == 0)
        x[:, ::2].sum(0), x.transpose(0, 1).sum(0)
        if dtype.is_floating_point: x.mean(0), torch.linalg.vector_norm(x)
w = torch.ones(2, device="cuda", requires_grad=True)
optimizer = torch.optim.SGD([w])
while True: w.sum().backward(); optimizer.step()
`, 4097, 100)
}

// TestQuickModelKnowsMatrixProducts with a bias and without, of each width of numbers, and where nothing is
// launched.
func TestQuickModelKnowsMatrixProducts(t *testing.T) {
	beside(t, `
import torch, torch.nn.functional as F
for dtype in (torch.float32, torch.bfloat16, torch.float64):
    make = lambda *shape: torch.ones(shape, dtype=dtype, device="cuda")
    x, w, b, square, v = make(64, 128), make(256, 128), make(256), make(4, 64, 64), make(128)
    F.linear(x, w), F.linear(x, w, b), F.linear(make(3, 64, 128), w, b), F.linear(x, w[:1], b[:1])
    torch.addmm(make(64, 256), x, w.t()), torch.addmm(b, x, w.t(), beta=2)
    torch._addmm_activation(b, x, w.t()), torch.matmul(make(2, 3, 64, 64), square[0])
    torch.mm(x, w.t()), torch.mm(x[:0], w.t()), torch.mm(x[:, :0], w.t()[:0]), torch.mm(x[:1], w.t())
    torch.bmm(square, square), torch.baddbmm(square, square, square)
    torch.mv(x, v), torch.addmv(make(64), x, v), torch.dot(v, v)
w = torch.ones(512, 512, device="cuda", requires_grad=True)
optimizer = torch.optim.SGD([w])
while True: (w @ w).square().sum().backward(); optimizer.step()
`, 1<<20, 50)
}
