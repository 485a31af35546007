package joint

import (
	"testing"

	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/managers/plan/plantest"
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/traces"
)

// TestBranchesSplitWhereRerunsGrowLong: a weight's gradient is cheap to make again at once, and takes most of
// the forward pass at the end of the step, where it is wanted. A branch decides about the position at which
// the ascent made it again, and if all of these are decided, about another gradient that shares its ops
// there.
func TestBranchesSplitWhereRerunsGrowLong(t *testing.T) {
	t.Parallel()
	const ms = 1_000_000
	b := plantest.New()
	buffer := func(name string, mib int64) plan.BufferID {
		return b.Buffer(name, mib<<19, timeline.Activation)
	}
	sizes, weights := []int64{16, 40, 12, 4, 2, 2, 2}, []int64{0, 1, 1, 2, 3, 12, 20}
	times := []int64{0, 22, 8, 8, 4, 2, 2}
	acts := make([]plan.BufferID, len(sizes))
	for i, size := range sizes {
		acts[i] = buffer("act", size)
		var reads []plan.BufferID
		if i > 0 {
			reads = acts[i-1 : i]
		}
		id := b.Op("forward", traces.PhaseForward, times[i]*ms, reads, acts[i:i+1])
		b.P.Ops[id].Rerunnable = i > 0
	}
	grad := buffer("grad", 2)
	b.Op("loss", traces.PhaseForward, ms, acts[len(acts)-1:], []plan.BufferID{grad})
	var gradients []plan.BufferID
	for i := len(sizes) - 1; i > 0; i-- {
		next, of := buffer("grad", sizes[i-1]), buffer("weight.grad", weights[i])
		reads, writes := []plan.BufferID{grad, acts[i-1]}, []plan.BufferID{of, next}
		b.Op("backward", traces.PhaseForward, 6*ms, reads, writes)
		grad, gradients = next, append(gradients, of)
	}
	for i := len(gradients) - 1; i >= 0; i-- {
		id := b.Op("update", traces.PhaseForward, 0, gradients[i:i+1], nil)
		b.P.Ops[id].Rerunnable = false
	}
	m := compile(b.End(), defaults())
	s := newIntervals(newBounder(m), m.floor)
	s.look(newPhases(levels(s.bounder.tight, &s.m.params.proof)[0], s.fixed))
	var longest []int // the spans of the two largest gradients
	for k := range s.spans {
		if of := s.spans[k].buffer; of == gradients[0] || of == gradients[1] {
			longest = append(longest, k)
		}
	}
	if len(longest) != 2 {
		t.Fatalf("spans %v of gradients", longest)
	}
	x, y := &s.spans[longest[0]], &s.spans[longest[1]]
	last := len(x.makings) - 1
	if last < 2 || x.makings[last].ops[0] > 2 {
		t.Fatalf("%d makings, the last of which reruns %v", last+1, x.makings[last].ops)
	}
	x.reran, x.latest = 1, last
	if span, at := s.split(); span != longest[0] || at != last {
		t.Errorf("the branch splits span %d at %d, want %d at %d", span, at, longest[0], last)
	}
	x.reran, x.decided.since = 0, last
	s.share()
	span, at := s.split()
	if span < 0 || span == longest[0] || at < 0 || at >= len(s.spans[span].open()) {
		t.Fatalf("the branch splits span %d at %d", span, at)
	}
	if span != longest[1] {
		t.Errorf("the branch splits span %d, and span %d shares more", span, longest[1])
	}
	alone := x.least
	y.decided.until = at
	if s.share(); x.least <= alone {
		t.Errorf("without a gradient that shares its ops the other pays %.0f, with it %.0f", x.least, alone)
	}
}
