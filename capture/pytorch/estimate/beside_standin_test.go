//go:build standin

package estimate_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/capture/pytorch/estimate"
	"github.com/gmemtop/gmemtop/traces"
)

// large returns the sizes of a trace's GPU allocations of at least `least` bytes, in order, rounded up to
// 512.
func large(tr *traces.Trace, least int64) (sizes []int64) {
	for e := range tr.Events.Len() {
		ev := tr.Events.At(e)
		if tr.Devices[ev.Device].Kind == traces.DeviceGPU && ev.Action == traces.Alloc && ev.Size >= least {
			sizes = append(sizes, (ev.Size+511)/512*512)
		}
	}
	return sizes
}

// beside checks that a script allocates the same blocks of at least `least` bytes under both allocators, and
// how many there are.
func beside(t *testing.T, script string, least int64, blocks int) {
	t.Helper()
	got, want, said := sizes(t, script, least)
	if len(want) < blocks || !slices.Equal(got, want) {
		t.Errorf("with fake tensors the blocks are\n%v, with PyTorch's own allocator\n%v\n%s", got, want,
			said)
	}
}

// sizes returns the sizes of the blocks of at least `least` bytes that a script allocates, with fake tensors
// and with PyTorch's own allocator, and what it printed.
func sizes(t *testing.T, script string, least int64) (model, own []int64, said string) {
	t.Helper()
	p, said := one(t, estimate.RealOptions{Card: "h100"}, script)
	r, modelled, err := program(t, estimate.Options{}, script)
	if err != nil {
		t.Fatalf("%v\n%s", err, modelled)
	}
	return large(r.Trace, least), large(p.Trace, least), said
}

// TestQuickModelKnowsConvolutions checks what convolutions take: plain, transposed, in groups and with
// benchmarking; and what copies to the host take.
func TestQuickModelKnowsConvolutions(t *testing.T) {
	got, want, said := sizes(t, `
import torch, torch.nn as nn
def train(layers):
    model = nn.Sequential(*layers).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    y = model(torch.randn(8, 16, 30, 30, device="cuda", requires_grad=True))
    y.square().sum().backward()
    y.detach().permute(0, 2, 3, 1).to("cpu", torch.float64), y[:, 1:].cpu(), y.cpu()
    optimizer.step()
train([nn.Conv2d(16, 64, 3), nn.ConvTranspose2d(64, 32, 4, stride=2), nn.Conv2d(32, 32, 3, groups=4)])
train([nn.Conv2d(16, 32, 3, groups=16), nn.Conv2d(32, 32, 5, bias=False)])
torch.backends.cudnn.benchmark = True
train([nn.Conv2d(16, 64, 3), nn.Conv2d(64, 64, 3)])
`, 1024)
	slices.Sort(got)
	slices.Sort(want)
	if len(want) < 60 || !slices.Equal(got, want) {
		t.Errorf("with fake tensors the blocks are\n%v, with PyTorch's own allocator\n%v\n%s", got, want,
			said)
	}
}

// opsBeside are programs that call ops in all the ways that change what they allocate. They run as functions
// of one script, since a Python with torch takes seconds to start.
var opsBeside = []struct {
	name   string
	least  int64 // blocks of at least this many bytes are compared
	blocks int   // the test wants at least this many of them
	script string
}{
	// The formulas of max and gather fill zeros in their place.
	{"zeros", 1 << 20, 10, `
w = torch.ones(8, 65536, device="cuda", requires_grad=True)
which = torch.zeros(8, 1, dtype=torch.int64, device="cuda")
for _ in range(2):
    z = w.sin()
    z.max(1).values.sum().backward()
    w.sin().gather(1, which).sum().backward()
    w.grad = None
`},
	// Along each dimension and all of them, with each width of numbers.
	{"reductions", 4097, 100, `
for dtype in (torch.float32, torch.bfloat16, torch.float64, torch.int64):
    for shape in ((6304, 768), (100000, 10), (3, 200000), (513, 7, 1025), (64, 16, 56, 56), (5000, 5001)):
        x = torch.ones(shape, dtype=dtype, device="cuda")
        for dim in (0, 1, -1, (0, 1), tuple(range(len(shape)))[1:], None):
            x.sum() if dim is None else x.sum(dim, keepdim=dim == 0)
        x[:, ::2].sum(0), x.transpose(0, 1).sum(0)
        if dtype.is_floating_point: x.mean(0), torch.linalg.vector_norm(x)
`},
	// With and without a bias, with each width of numbers, and with sizes for which nothing is launched.
	{"matrix products", 1 << 20, 25, `
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
for _ in range(2): (w @ w).square().sum().backward(); w.grad = None
`},
	// In both directions, with projections, batch-first, with sequences of several lengths, in half precision
	// and in evaluation mode.
	{"recurrent networks", 1 << 18, 60, `
def train(kind, half=False, packed=False, **more):
    net = kind(64, 128, 2, **more).cuda()
    x = torch.randn(32, 20, 64, device="cuda", requires_grad=True)
    if half: net, x = net.half(), x.detach().half()
    for _ in range(2):
        lengths = [20 - i % 10 for i in range(20)]
        given = pack_padded_sequence(x, lengths, enforce_sorted=False) if packed else x
        y, state = net(given)
        if packed: y, _ = pad_packed_sequence(y)
        y.float().sum().backward()
    with torch.no_grad(): net.eval()(x)
train(nn.GRU, bidirectional=True), train(nn.RNN, nonlinearity="relu", half=True), train(nn.RNN, bias=False)
train(nn.LSTM, proj_size=32), train(nn.LSTM, packed=True)
train(nn.LSTM, batch_first=True, dropout=0.1)
`},
	// Both types of autocast copy weights each time; and what stays for the backward pass.
	{"recurrent networks under autocast", 1 << 18, 60, `
def train(kind, dtype=torch.float16, net_dtype=torch.float32, **more):
    net = kind(64, 128, 2, **more).to("cuda", net_dtype)
    x = torch.randn(32, 20, 64, device="cuda", requires_grad=True, dtype=net_dtype)
    for _ in range(2):
        with torch.autocast("cuda", dtype):
            y, state = net(x.sin())
            loss = y.float().sum()
        loss.backward()
    with torch.no_grad(), torch.autocast("cuda", dtype): net.eval()(x)
train(nn.LSTM), train(nn.GRU, torch.bfloat16, bidirectional=True), train(nn.RNN, bias=False)
train(nn.LSTM, net_dtype=torch.float16), train(nn.LSTM, batch_first=True, dropout=0.1)
`},
	{"tensors in lists", 1 << 20, 4, `
w = torch.ones(512, 512, device="cuda", requires_grad=True)
for _ in range(2):
    loss = w.square().sum()
    many = torch.tensor([loss.detach(), [1.0, loss.detach()][1]], device="cuda")
    loss.backward(); w.grad = None
`},
}

// TestQuickModelKnowsOps checks that the ops above allocate the same blocks in the same order with fake
// tensors and under PyTorch's own allocator.
func TestQuickModelKnowsOps(t *testing.T) {
	const mark = 777 << 20 // the size of a block that ends each program, and of no other
	var script strings.Builder
	script.WriteString(`
import torch, torch.nn as nn, torch.nn.functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
weights = torch.ones(2, device="cuda", requires_grad=True)
optimizer = torch.optim.SGD([weights]) # whose steps are counted, and not backward passes
`)
	for i, x := range opsBeside {
		fmt.Fprintf(&script, "def part%d():\n    %s\n", i, strings.ReplaceAll(x.script, "\n", "\n    "))
		fmt.Fprintf(&script, "part%d(); del part%d; torch.empty(%d, dtype=torch.uint8, device='cuda')\n",
			i, i, mark)
	}
	script.WriteString("while True: weights.sum().backward(); optimizer.step()\n")
	got, want, said := sizes(t, script.String(), 1024)
	for _, x := range opsBeside {
		var a, b []int64
		if a, got = until(got, mark, x.least); got == nil {
			t.Fatalf("%s: with fake tensors it does not end\n%s", x.name, said)
		}
		if b, want = until(want, mark, x.least); want == nil {
			t.Fatalf("%s: with PyTorch's own allocator it does not end\n%s", x.name, said)
		}
		if t.Logf("%s: %d blocks", x.name, len(b)); len(b) < x.blocks || !slices.Equal(a, b) {
			t.Errorf("%s: with fake tensors the blocks are\n%v, with PyTorch's own allocator\n%v\n%s",
				x.name, a, b, said)
		}
	}
}

// until returns the sizes of at least `least` bytes before the first that is mark, and all that follow it:
// nil if none is.
func until(list []int64, mark, least int64) (part, rest []int64) {
	for i, size := range list {
		if size == mark {
			return part, list[i+1:]
		}
		if size >= least {
			part = append(part, size)
		}
	}
	return part, nil
}

// TestModelAllocatesTheMaskOfADropoutFirst, as PyTorch's code for CUDA does.
func TestModelAllocatesTheMaskOfADropoutFirst(t *testing.T) {
	beside(t, `
import torch
w = torch.ones(8, 1 << 20, device="cuda", requires_grad=True)
optimizer = torch.optim.SGD([w])
while True:
    torch.nn.functional.dropout(w).sum().backward()
    optimizer.step(); optimizer.zero_grad()
`, 1<<20, 9)
}

// TestStepsByHand: if the script makes no optimizer of torch, each backward pass ends a step.
func TestStepsByHand(t *testing.T) {
	r, said, err := program(t, estimate.Options{}, `
import torch
w = torch.ones(300, 300, device="cuda", requires_grad=True)
for _ in range(9):
    (w @ w).sum().backward()
    w.grad = None
`)
	if err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	if r.Steps != 3 {
		t.Errorf("%d steps", r.Steps)
	}
}

// TestTheCacheIsGivenBack: the script and cuDNN's benchmarking empty the cache after the right number of
// blocks.
func TestTheCacheIsGivenBack(t *testing.T) {
	r, said, err := program(t, estimate.Options{}, `
import torch, torch.nn as nn
torch.backends.cudnn.benchmark = True
w = torch.ones(300, 300, device="cuda", requires_grad=True)
torch.cuda.empty_cache()
x, filters = torch.ones(1, 1, 9, 9, device="cuda"), torch.ones(2, 1, 3, 3, device="cuda")
y = torch.conv2d(x, filters), torch.conv2d(x, filters)
optimizer = torch.optim.SGD([w])
w.sum().backward()
optimizer.step()
`)
	if err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	// w; x, filters, the first result and the trial's workspace
	if want := []int64{1, 5}; !slices.Equal(r.Emptied, want) {
		t.Errorf("given back after %v blocks, expected %v", r.Emptied, want)
	}
}

// TestQuickModelAllocatesAsReal adds up gradients: fresh ones, ones that something else holds, and views.
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
