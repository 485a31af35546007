package steps_test

import (
	"fmt"
	"math/rand"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/timeline/sites"
	"github.com/gmemtop/gmemtop/timeline/steps"
	"github.com/gmemtop/gmemtop/timeline/timelinetest"
)

// noisyTraining is a training of n steps with activations of all sizes, a cache that drops random entries,
// one that drops the oldest, one that fills up and stays, and, if leak is not 0, a tensor of leak bytes that
// each step keeps.
func noisyTraining(n int, leak int) string {
	const module = "_call_impl torch/nn/modules/module.py:1 < main train.py:5"
	rng := rand.New(rand.NewSource(7))
	var b strings.Builder
	fmt.Fprintln(&b, "gpu 0\nstack init init model.py:3 < main train.py:1")
	fmt.Fprintln(&b, "stack fwd forward model.py:10 <", module)
	fmt.Fprintln(&b, "stack bwd torch::autograd::Engine::thread_main ??:0")
	fmt.Fprintln(&b, "stack opt _single_tensor_adamw /lib/torch/optim/adamw.py:50 < "+
		"step /lib/torch/optim/adamw.py:30 < main train.py:8")
	for _, site := range []string{"any", "ring", "full", "planted"} {
		fmt.Fprintf(&b, "stack %s %s helper.py:1 < main train.py:9\n", site, site)
	}
	fmt.Fprintln(&b, "+ w 512m init")
	var entries []int
	for i := range n {
		fmt.Fprintf(&b, "+ a %d fwd\n+ g 64k bwd\n- a\n+ t 4k opt\n- t\n- g\n", 512*(1+rng.Intn(4096)))
		fmt.Fprintf(&b, "+ any%d %d any\n", i, 512*(1+rng.Intn(2048)))
		if entries = append(entries, i); len(entries) > 20+rng.Intn(10) {
			k := rng.Intn(len(entries))
			fmt.Fprintf(&b, "- any%d\n", entries[k])
			entries = append(entries[:k], entries[k+1:]...)
		}
		fmt.Fprintf(&b, "+ ring%d 2k ring\n", i)
		if i >= 40 {
			fmt.Fprintf(&b, "- ring%d\n", i-40)
		}
		if i < n/4 {
			fmt.Fprintf(&b, "+ full%d 1m full\n", i)
		}
		if leak > 0 {
			fmt.Fprintf(&b, "+ planted%d %d planted\n", i, leak)
		}
	}
	return b.String()
}

func TestALeakOfOneSmallTensorAStepIsFoundWithItsSite(t *testing.T) {
	for _, leak := range []int{4, 4096} {
		d := timelinetest.Script(t, noisyTraining(200, leak)).Main()
		found := steps.Leaks(d)
		if len(found) != 1 || sites.Name(d, found[0].Stack) != "planted helper.py:1" {
			t.Errorf("%d bytes a step: %+v", leak, found)
			continue
		}
		want := float64(max(leak, 512))
		if l := found[0]; l.Low > want || l.High < want || l.Low < want/2 {
			t.Errorf("%.0f bytes a step are reported as %.0f [%.0f, %.0f]", want, l.Slope, l.Low, l.High)
		}
	}
}

func TestTenThousandStepsWithoutALeakHaveNone(t *testing.T) {
	for _, n := range []int{200, 10_000} {
		d := timelinetest.Script(t, noisyTraining(n, 0)).Main()
		if it := steps.Of(d); len(it.List) < n-1 {
			t.Fatalf("%d of %d steps were found", len(it.List), n)
		}
		for _, l := range steps.Leaks(d) {
			t.Errorf("%d steps: %s grows by %.0f bytes a step", n, sites.Name(d, l.Stack), l.Slope)
		}
	}
}
