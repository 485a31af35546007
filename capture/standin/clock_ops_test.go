package standin_test

import (
	"testing"

	"github.com/gmemtop/gmemtop/capture/standin"
	"github.com/gmemtop/gmemtop/capture/standin/standintest"
)

// TestQuickOpsTakeVirtualTime: an op of PyTorch takes as long as its FLOPs or its bytes take on the card, and
// the program's own clock shows it.
func TestQuickOpsTakeVirtualTime(t *testing.T) {
	standintest.Computing(t) // the same functions of torch
	standintest.Python(t, standin.Machine{Model: "plain", Memory: "1GiB", Clock: standin.Program,
		Rates: "launch=10,event=0,kernel=100"}, `
import time, torch
a = torch.zeros(64, 64, device="cuda")
first, second, third = (torch.cuda.Event(enable_timing=True) for _ in range(3))
a @ a  # cuBLAS is started
torch.cuda.synchronize()
began = time.perf_counter_ns()
first.record(); b = a @ a; second.record(); c = a + b; third.record()
torch.cuda.synchronize()
took = time.perf_counter_ns() - began
product, total = (round(x.elapsed_time(y) * 1e6) for x, y in ((first, second), (second, third)))
assert product == 10 + 100 + 2 * 64 ** 3, product     # a FLOP a nanosecond
assert total == 100 + 3 * 4 * 64 ** 2 // 10, total  # three tensors at 10 bytes a nanosecond
assert took == product + total + 25, took
count = torch.zeros((), dtype=torch.int64, device="cuda")
count.add_(1)  # a number in a tensor's place
`)
}
