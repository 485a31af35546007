package plan_test

import (
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/managers/plan/plantest"
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/traces"
)

// A batch that the program holds until the next one comes stays in memory whatever autograd's hooks do: to
// take it for gone would predict less than is taken.
func TestABatchThatTheProgramHoldsDoesNotLeaveMemory(t *testing.T) {
	b := plantest.New()
	var saved []plan.BufferID
	for _, name := range []string{"freed by autograd", "held by the program"} {
		saved = append(saved, b.Buffer(name, 8, timeline.Input))
	}
	saved = append(saved, b.Buffer("made by a layer", 8, timeline.Activation))
	after := b.Op("forward", traces.PhaseForward, 1, nil, saved)
	b.Op("more", traces.PhaseForward, 1, nil, nil)
	before := b.Op("backward", traces.PhaseBackward, 1, saved, nil)
	b.Op("optimizer", traces.PhaseOptimizer, 1, nil, nil)
	p := b.End()
	for _, x := range saved {
		p.Buffers[x].Saved = true
	}
	p.SavesKnown, p.EagerOnly = true, true
	p.Buffers[saved[1]].End, p.Buffers[saved[2]].End = plan.OpID(len(p.Ops)), plan.OpID(len(p.Ops))
	for i, held := range []bool{false, true, false} {
		why := p.EagerRefusal(plan.Absence{Buffer: saved[i], After: after, Before: before})
		if held != strings.Contains(why, "the program itself holds it") || !held && why != "" {
			t.Errorf("%s: %q", p.Buffers[saved[i]].Name, why)
		}
	}
	if gaps := p.Gaps(1, 1); len(gaps) != 2 || gaps[0].Buffer != saved[0] || gaps[1].Buffer != saved[2] {
		t.Errorf("gaps %+v", gaps)
	}
}
