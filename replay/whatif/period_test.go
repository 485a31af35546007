package whatif

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/timelinetest"
	"github.com/gmemtop/gmemtop/traces"
)

// TestARequestThatFailsWasMadeBeforeIfItIsAboutAsLarge has two whole steps of ten layers, with 1000 bytes
// each, and one that fails in its last layer.
func TestARequestThatFailsWasMadeBeforeIfItIsAboutAsLarge(t *testing.T) {
	const layers = 10
	var script strings.Builder
	script.WriteString("stack data load train.py:5\n")
	for k := range layers {
		fmt.Fprintf(&script, "stack layer%d forward model.py:%d < _call_impl "+
			"/site-packages/torch/nn/modules/module.py:1 < main train.py:9\n", k, k+1)
	}
	step := func(last string) {
		script.WriteString("+ batch 1000 data\n")
		for k := range layers - 1 {
			fmt.Fprintf(&script, "+ out%d 1000 layer%d\n", k, k)
		}
		script.WriteString(last)
		for k := range layers - 1 {
			fmt.Fprintf(&script, "- out%d\n", k)
		}
		script.WriteString("- batch\n")
	}
	for range 2 {
		step("+ last 1000 layer9\n- last\n")
	}
	whole := script.String()
	for size, want := range map[int]int{
		1000: layers + 1, 1250: layers + 1, 800: layers + 1,
		1251: 0, 799: 0, 500: 0, 4000: 0,
	} {
		script.Reset()
		script.WriteString(whole)
		step(fmt.Sprintf("oom %d 0 layer9\n", size))
		d := timelinetest.Script(t, script.String()).Main()
		failed := timeline.Moment(0)
		for d.Event(failed).Action != traces.OOM {
			failed++
		}
		if got := period(d, failed); got != want {
			t.Errorf("%d bytes: the request comes again after %d others, want %d", size, got, want)
		}
	}
}

func TestTheRestOfAStepIsScaled(t *testing.T) {
	for _, c := range []struct {
		scale      float64
		size, want int64
	}{
		{1, 0, 0}, {1, 1<<60 + 1, 1<<60 + 1}, {0.5, 0, 0}, {0.5, 1, 1}, {0.5, 7, 3}, {2, 8, 16},
	} {
		if got := (&edit{scale: c.scale}).scaled(c.size); got != c.want {
			t.Errorf("%d bytes × %v are %d, want %d", c.size, c.scale, got, c.want)
		}
	}
}
