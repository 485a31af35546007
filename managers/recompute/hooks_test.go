package recompute_test

import (
	"testing"

	"github.com/gmemtop/gmemtop/managers/place"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/managers/plan/plantest"
	"github.com/gmemtop/gmemtop/managers/recompute"
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/traces"
)

// hookedStep is a step in which autograd saves x twice and y once; if it changes,
// op 2 writes to x. Ops are numbered as they are listed.
func hookedStep(changes bool) (p *plan.Problem, x plan.BufferID) {
	b := plantest.New()
	x = b.Buffer("x", 8, timeline.Activation)
	y := b.Buffer("y", 8, timeline.Activation)
	read := func(ids ...plan.BufferID) []plan.BufferID { return ids }
	for _, op := range []struct {
		name, module string
		phase        traces.Phase
		reads, makes []plan.BufferID
	}{
		{"make", "net.a", traces.PhaseForward, nil, read(x)},      // 0
		{plan.SaveOp, "net.a", traces.PhaseForward, read(x), nil}, // 1
		{"read", "net.b", traces.PhaseForward, read(x), read(y)},  // 2
		{plan.SaveOp, "net.b", traces.PhaseForward, read(x), nil}, // 3
		{"nothing", "net.b", traces.PhaseForward, read(y), nil},   // 4
		{plan.SaveOp, "net.b", traces.PhaseForward, read(y), nil}, // 5
		{"nothing", "net.b", traces.PhaseForward, read(y), nil},   // 6
		{"loss", "", traces.PhaseForward, read(y), nil},           // 7
		{plan.LoadOp, "", traces.PhaseBackward, read(y), nil},     // 8
		{"backward", "", traces.PhaseBackward, read(y), nil},      // 9
		{plan.LoadOp, "", traces.PhaseBackward, read(x), nil},     // 10
		{"backward", "", traces.PhaseBackward, read(x), nil},      // 11
	} {
		i := b.Op(op.name, op.phase, 1, op.reads, op.makes)
		b.P.Ops[i].Module, b.P.Ops[i].Recorded = op.module, int32(i)+1
		if changes && i == 2 {
			b.Mutate(x)
		}
	}
	b.P.SavesKnown = true
	b.P.Buffers[x].Saved, b.P.Buffers[y].Saved = true, true
	return b.End(), x
}

// TestSwapsMoveToTheMomentsAtWhichHooksAct compares with what the agent does: it copies at the first save,
// releases memory at a save or after the outermost module, and brings tensors back at a load.
func TestSwapsMoveToTheMomentsAtWhichHooksAct(t *testing.T) {
	p, x := hookedStep(false)
	for _, c := range []struct{ release, fetch, wantRelease, wantFetch plan.OpID }{
		{4, 10, 5, 10}, // at the next save
		{5, 10, 5, 10}, // a save releases before it saves
		{6, 10, 7, 10}, // the outermost module ends before the loss
		{8, 10, 8, 10}, // at a load
		{9, 9, 8, 10},  // the first load releases all that is left
		{4, 6, 5, 8},
	} {
		d, notes, err := recompute.Eager(p, plan.Decisions{Absences: []plan.Absence{
			{Buffer: x, After: 3, Release: c.release, Fetch: c.fetch, Before: 10, Joined: c.fetch},
		}})
		if err != nil || len(d.Absences) != 1 {
			t.Fatalf("release %d, fetch %d: %+v, %v, %v", c.release, c.fetch, d, notes, err)
		}
		want := plan.Absence{Buffer: x, After: 1, Release: c.wantRelease, Fetch: c.wantFetch, Before: 10,
			Blocking: true, Paced: true}
		if got := d.Absences[0]; got != want {
			t.Errorf("release %d, fetch %d: %+v, want %+v", c.release, c.fetch, got, want)
		}
	}
}

// TestBytesThatChangeAreCopiedWhenTheyAreSavedAgain has an op write to what was saved.
func TestBytesThatChangeAreCopiedWhenTheyAreSavedAgain(t *testing.T) {
	p, x := hookedStep(true)
	pl, err := plan.Assemble(p, plan.Decisions{Absences: []plan.Absence{
		{Buffer: x, After: 3, Release: 4, Fetch: 10, Before: 10},
	}})
	if err != nil {
		t.Fatal(err)
	}
	pl.Manager = "by hand"
	out := runnable(t, p, pl, place.Options{Rule: place.FirstFit})
	if err := plan.Validate(p, out); err != nil {
		t.Error(err)
	}
	if len(out.Absences) != 1 || out.Absences[0].After != 3 {
		t.Errorf("%+v: it leaves behind op 1, and op 2 changes it", out.Absences)
	}
}

// TestWhatIsNeededFirstComesBackFirst has one load bring back two tensors.
func TestWhatIsNeededFirstComesBackFirst(t *testing.T) {
	p, x := hookedStep(false)
	y := x + 1
	d, notes, err := recompute.Eager(p, plan.Decisions{Absences: []plan.Absence{
		{Buffer: x, After: 3, Release: 4, Fetch: 8, Before: 10},
		{Buffer: y, After: 7, Release: 8, Fetch: 8, Before: 8},
	}})
	if err != nil || len(d.Absences) != 2 || d.Absences[0].Buffer != y || d.Absences[1].Buffer != x {
		t.Errorf("%+v, %v, %v", d.Absences, notes, err)
	}
}
