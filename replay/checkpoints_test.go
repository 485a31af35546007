package replay

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/managers/plan/plantest"
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/traces"
)

// checkpointed returns a training with a number of layers, each checkpointed: its forward pass makes two
// buffers, of 100 and 10 bytes, and keeps the second, which the next layer reads.
func checkpointed(layers int, extra int64) *plan.Problem {
	b := plantest.New()
	out := make([]plan.BufferID, layers+1)
	out[0] = b.Buffer("input", 10, timeline.Input)
	b.Op("data", traces.PhaseForward, 1, nil, out[:1])
	forward := func(i int, phase traces.Phase, to plan.BufferID) plan.BufferID {
		inner := b.Buffer("inner", 100, timeline.Activation)
		for _, op := range []struct {
			name         string
			reads, write plan.BufferID
		}{{"mm", out[i], inner}, {"gelu", inner, to}} {
			k := b.Op(op.name, phase, 5, []plan.BufferID{op.reads}, []plan.BufferID{op.write})
			b.P.Ops[k].Module = fmt.Sprintf("layers.%d.%s", i, op.name)
			b.P.Ops[k].Again = phase == traces.PhaseBackward
		}
		k := b.Op("add", phase, 0, nil, nil) // of the layer itself, whose own hooks a checkpoint may not run
		b.P.Ops[k].Module = fmt.Sprintf("layers.%d", i)
		if b.P.Ops[k].Again = phase == traces.PhaseBackward; b.P.Ops[k].Again {
			b.P.Ops[k].Module = ""
		}
		return inner
	}
	for i := range layers {
		out[i+1] = b.Buffer("out", 10, timeline.Activation)
		forward(i, traces.PhaseForward, out[i+1])
	}
	loss := b.Buffer("loss", extra, timeline.Temporary)
	b.Op("loss", traces.PhaseBackward, 5, out[layers:], []plan.BufferID{loss})
	for i := layers - 1; i >= 0; i-- {
		inner := forward(i, traces.PhaseBackward, b.Buffer("again", 10, timeline.Activation))
		b.Op("gelu_backward", traces.PhaseBackward, 5, []plan.BufferID{inner, out[i]}, nil)
	}
	return b.End()
}

func TestCheckpointsOfTheProgramItself(t *testing.T) {
	p := checkpointed(3, 1)
	all := checkpointsOf(p)
	var got []string
	for _, x := range all {
		got = append(got, fmt.Sprintf("%s %d-%d %d-%d %d %d", x.Module, x.Forward, x.Last, x.First, x.End,
			x.Time, x.Bytes))
	}
	want := "layers.2 7-8 11-14 10 100, layers.1 4-5 15-18 10 100, layers.0 1-2 19-22 10 100"
	if s := strings.Join(got, ", "); s != want {
		t.Errorf("the parts are %s, not %s", s, want)
	}
	if none := heldWithout(p, nil); none != p.Held() {
		t.Errorf("%d bytes without no checkpoint, and %d held", none, p.Held())
	}
	// All three keep their 100 bytes until the last of them would be rerun.
	if got, want := heldWithout(p, all), p.Load()[10]+300; got != want {
		t.Errorf("%d bytes without all of them, not %d", got, want)
	}
}

// TestAModuleThatABackwardPassRunsOnOtherInputsIsNoCheckpoint: the adjoint of an ODE evaluates the same
// layers in the backward pass, but on states that it computes there.
func TestAModuleThatABackwardPassRunsOnOtherInputsIsNoCheckpoint(t *testing.T) {
	b := plantest.New()
	state := b.Buffer("state", 10, timeline.Input)
	weight := b.Persistent("weight", 10, timeline.Parameter)
	b.Op("data", traces.PhaseForward, 1, nil, []plan.BufferID{state})
	slope := func(phase traces.Phase, of plan.BufferID) plan.BufferID {
		inner := b.Buffer("inner", 100, timeline.Activation)
		k := b.Op("mm", phase, 5, []plan.BufferID{of, weight}, []plan.BufferID{inner})
		b.P.Ops[k].Module, b.P.Ops[k].Again = "slope", phase == traces.PhaseBackward
		return inner
	}
	slope(traces.PhaseForward, state)
	own := b.Buffer("own", 10, timeline.AutogradDetail)
	b.Op("loss", traces.PhaseBackward, 5, nil, []plan.BufferID{own})
	inner := slope(traces.PhaseBackward, own)
	b.Op("mm_backward", traces.PhaseBackward, 5, []plan.BufferID{inner}, nil)
	if notes := checkpointNotes(b.End(), 0, timeline.IEC); len(notes) > 0 {
		t.Errorf("it says %q", notes)
	}
}

func TestCheckpointsThatABudgetDoesNotNeed(t *testing.T) {
	for _, c := range []struct {
		extra, budget int64
		want          string
	}{
		{1, 0, "3 parts"},
		{1, 160, "1 of the 3 parts (layers.2)"},
		{1, 250, "2 of the 3 parts (layers.2, layers.1)"},
		{300, 0, "3 parts"},
		{1, 10_000, "3 of the 3 parts (layers.2, layers.1, layers.0)"},
	} {
		p := checkpointed(3, c.extra)
		notes := checkpointNotes(p, c.budget, timeline.IEC)
		if len(notes) == 0 || !strings.Contains(notes[len(notes)-1], c.want) {
			t.Errorf("with %d bytes more and a budget of %d: %q, not %q", c.extra, c.budget, notes, c.want)
		}
		for _, x := range needless(p, checkpointsOf(p), c.budget) {
			if heldWithout(p, []checkpoint{x}) > c.budget {
				t.Errorf("without %s a step holds more than %d bytes", x.Module, c.budget)
			}
		}
	}
	if notes := checkpointNotes(checkpointed(0, 1), 0, timeline.IEC); notes != nil {
		t.Errorf("a program without checkpoints: %q", notes)
	}
}
