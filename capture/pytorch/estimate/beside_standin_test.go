//go:build standin

package estimate_test

import (
	"slices"
	"testing"

	"github.com/gmemtop/gmemtop/capture/pytorch/estimate"
	"github.com/gmemtop/gmemtop/traces"
)

// large are the sizes of a trace's allocations of at least a MiB, in their order, rounded up to 512 bytes.
func large(tr *traces.Trace) (sizes []int64) {
	for e := range tr.Events.Len() {
		if ev := tr.Events.At(e); ev.Action == traces.Alloc && ev.Size >= 1<<20 {
			sizes = append(sizes, (ev.Size+511)/512*512)
		}
	}
	return sizes
}

// TestQuickModelAllocatesAsReal where gradients meet: fresh ones, ones that something else holds, and views.
func TestQuickModelAllocatesAsReal(t *testing.T) {
	script := `
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
`
	p, said := one(t, estimate.RealOptions{Card: "h100"}, script)
	r, modelled, err := program(t, estimate.Options{}, script)
	if err != nil {
		t.Fatalf("%v\n%s", err, modelled)
	}
	got, want := large(r.Trace), large(p.Trace)
	if len(want) < 30 || !slices.Equal(got, want) {
		t.Errorf("with fake tensors the large blocks are\n%v, with PyTorch's own allocator\n%v\n%s", got, want,
			said)
	}
}
