package plan_test

import (
	"slices"
	"testing"

	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/managers/plan/plantest"
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/traces"
)

// TestOfTheCopiesOutAfterOneOpTheFirstThatCanBeginComesFirst: after the second op leave what it has written,
// which returns first, and what it has read, which was written before and can be copied while the op runs.
func TestOfTheCopiesOutAfterOneOpTheFirstThatCanBeginComesFirst(t *testing.T) {
	b := plantest.New()
	read := b.Buffer("read", 1<<20, timeline.Activation)
	written := b.Buffer("written", 1<<20, timeline.Activation)
	other := b.Buffer("other", 1<<20, timeline.Activation)
	buffers := func(x ...plan.BufferID) []plan.BufferID { return x }
	for _, o := range []struct{ reads, writes []plan.BufferID }{
		{nil, buffers(read)},
		{buffers(read), buffers(written)},
		{nil, buffers(other)},
		{buffers(written), nil},
		{buffers(read, other), nil},
	} {
		b.Op("op", traces.PhaseForward, 1000, o.reads, o.writes)
	}
	pl, err := plan.Assemble(b.End(), plan.Decisions{Absences: []plan.Absence{
		{Buffer: written, After: 1, Release: 2, Fetch: 3, Before: 3, How: plan.Swap},
		{Buffer: read, After: 1, Release: 2, Fetch: 4, Before: 4, How: plan.Swap},
	}})
	if err != nil {
		t.Fatal(err)
	}
	var out []plan.BufferID
	for _, s := range pl.Steps {
		if s.Kind == plan.Out {
			out = append(out, pl.Instances[s.Instance].Buffer)
		}
	}
	if !slices.Equal(out, buffers(read, written)) {
		t.Errorf("copied out in the order %v, not what op 0 wrote first", out)
	}
}
