//go:build standin

package estimate_test

import (
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/capture/pytorch/estimate"
)

// A script that only generates text, with a growing cache, runs to its end under both allocators. One that
// would train but ends earlier does not count as whole.
func TestQuickAScriptThatTrainsNothingIsSeenToItsEnd(t *testing.T) {
	const generate = `
import torch
model = torch.nn.Linear(512, 512).cuda().eval()
cache = torch.empty(1, 0, 512, device="cuda")
with torch.no_grad():
    for i in range(40):
        cache = torch.cat([cache, model(torch.randn(1, 100, 512, device="cuda"))], 1)
`
	for name, c := range map[string]struct {
		more  string
		whole bool
	}{
		"generates": {`print("came to its end")` + "\n", true},
		"trains":    {"torch.optim.SGD(model.parameters())\n" + `print("came to its end")` + "\n", false},
	} {
		t.Run(name, func(t *testing.T) {
			p, said := one(t, estimate.RealOptions{Card: "h100"}, generate+c.more)
			r, modelled, err := program(t, estimate.Options{}, generate+c.more)
			if err != nil {
				t.Fatalf("%v\n%s", err, modelled)
			}
			if p.Whole != c.whole || r.Whole != c.whole || p.Steps+r.Steps != 0 {
				t.Errorf("whole: %v, with fake tensors %v, expected %v", p.Whole, r.Whole, c.whole)
			}
			if !strings.Contains(said, "to its end") || !strings.Contains(modelled, "to its end") {
				t.Errorf("it was ended before:\n%s%s", said, modelled)
			}
			// the caches of the last two passes exist at the same time
			if least := int64(4 * 512 * 100 * (39 + 40)); p.Fullest().Allocated < least {
				t.Errorf("%d bytes at the peak, expected at least %d", p.Fullest().Allocated, least)
			}
		})
	}
}

// If a script drops its first optimizer, steps continue with the one that is left, under either allocator. If
// it keeps two, the steps of the first count.
func TestQuickStepsGoOnWithoutTheFirstOptimizer(t *testing.T) {
	for name, script := range map[string]string{
		"dropped": `
first = torch.optim.SGD(model.parameters(), lr=0.1)
optimizer = first
step()
del first
optimizer = torch.optim.AdamW(model.parameters())
import gc; gc.collect()
for _ in range(20): step()
`, "kept": `
first, second = optimizer, torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(20):
    optimizer = first; step(); optimizer = second; step()
`} {
		t.Run(name, func(t *testing.T) {
			script := network + script + `print("trained on")` + "\n"
			p, said := one(t, estimate.RealOptions{Card: "h100"}, script)
			r, modelled, err := program(t, estimate.Options{}, script)
			if err != nil {
				t.Fatalf("%v\n%s", err, modelled)
			}
			if p.Steps != 3 || r.Steps != 3 || strings.Contains(said+modelled, "trained on") {
				t.Errorf("%d steps, with fake tensors %d, and the script did not end there:\n%s%s", p.Steps,
					r.Steps, said, modelled)
			}
		})
	}
}
