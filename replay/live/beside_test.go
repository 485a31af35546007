package live

import (
	"slices"
	"testing"

	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/traces"
)

// inTurn returns the recording as one of a program that runs one of two networks in turn: in its first step
// all modules have other names, and the last op of the second one is another.
func inTurn(t *testing.T) *traces.Trace {
	t.Helper()
	tr := recording(t, triedCosts)
	tr.Strings = slices.Clone(tr.Strings)
	second := tr.Marks[len(tr.Marks)-1].Start
	named := map[traces.StringID]traces.StringID{}
	for i := range tr.Ops {
		op := &tr.Ops[i]
		if op.Start >= second || op.Module == 0 {
			continue
		}
		if _, ok := named[op.Module]; !ok {
			named[op.Module] = traces.StringID(len(tr.Strings))
			tr.Strings = append(tr.Strings, "elsewhere."+tr.Text(op.Module))
		}
		op.Module = named[op.Module]
	}
	tr.Ops[len(tr.Ops)-1].Name = traces.StringID(len(tr.Strings))
	tr.Strings = append(tr.Strings, "aten::other")
	return tr
}

// everything swaps all that autograd saves in a step.
func everything(t *testing.T, p *plan.Problem) *plan.Plan {
	t.Helper()
	var d plan.Decisions
	for _, g := range p.Gaps(1, 1) {
		if len(d.Absences) == 0 || d.Absences[len(d.Absences)-1].Buffer != g.Buffer {
			d.Absences = append(d.Absences, plan.Absence{Buffer: g.Buffer, After: g.After,
				Release: g.After + 1, Fetch: g.Before, Before: g.Before, How: plan.Swap})
		}
	}
	pl, err := plan.Assemble(p, d)
	if err != nil || len(d.Absences) == 0 {
		t.Fatal(len(d.Absences), err)
	}
	pl.Executor = plan.TorchEager
	return pl
}

// rerun drops what one op makes from what is in memory, and runs it again.
func rerun(t *testing.T, p *plan.Problem) *plan.Plan {
	t.Helper()
	words, ops, err := rerunning(p)
	if err != nil || len(ops) == 0 || words == nil {
		t.Fatal(len(ops), err)
	}
	var d plan.Decisions
	for _, g := range p.Gaps(1, 1) {
		made, ok := p.Producer(g.Buffer, g.Before)
		if ok && len(made) == 1 && made[0] == ops[0] {
			d.Absences = []plan.Absence{{Buffer: g.Buffer, After: g.After, Release: g.After + 1,
				Fetch: g.Before, Before: g.Before, How: plan.Recompute}}
			d.Reruns = []plan.Rerun{{Before: g.Before, Ops: made}}
		}
	}
	pl, err := plan.Assemble(p, d)
	if err != nil {
		t.Fatal(err)
	}
	pl.Executor = plan.TorchEager
	return pl
}

// What only another step has leaves by rules of that step, which have numbers of their own and change nothing
// in the planned step.
func TestAPlanAlsoActsInStepsThatHaveOtherPlaces(t *testing.T) {
	d := &drifting{tr: inTurn(t)}
	p, err := NewTarget(d, Options{}).Problem(t.Context(), Hardware{Chosen: true})
	if err != nil {
		t.Fatal(err)
	}
	first := everything(t, p)
	which, takes, err := Fullest(p, first)
	if err != nil || takes != p.Varied[which].Held() {
		t.Fatalf("%v: step %d takes %d bytes of %d", err, which, takes, p.Varied[which].Held())
	}
	q := p.Varied[which]
	for _, own := range []*plan.Plan{everything(t, q), rerun(t, q)} {
		both, err := Join(p, first, which, own)
		if err != nil || both == first || first.Varied != nil {
			t.Fatal(both == first, err)
		}
		_, less, err := Fullest(p, both)
		if with, _ := own.PeakLive(); err != nil || less != with {
			t.Errorf("%v: other steps take %d bytes, %d without what is for them, and %d are planned", err,
				less, takes, with)
		}
		alone, err := rulesOf(p, first, Same, true)
		if err != nil {
			t.Fatal(err)
		}
		rules, err := rulesOf(p, both, Same, true)
		if err != nil {
			t.Fatal(err)
		}
		before, after := alone.Places, rules.Places
		if rules.Saves != alone.Saves || !slices.Equal(after.Saves[:len(before.Saves)], before.Saves) ||
			!slices.Equal(after.Loads[:len(before.Loads)], before.Loads) ||
			len(after.Saves) != 2*len(before.Saves) {
			t.Errorf("places %+v became %+v", before, after)
		}
		if rules.Sizes[0] >= alone.Sizes[0] || rules.Sizes[1] != alone.Sizes[1] {
			t.Errorf("%v bytes are kept, %v without what is for other steps", rules.Sizes, alone.Sizes)
		}
		added := rules.Values[len(alone.Values):]
		if len(added) != len(own.Absences) || slab(p, both) != rules.Slab {
			t.Errorf("%d further values for %d, in %d bytes", len(added), len(own.Absences), rules.Slab)
		}
		for _, v := range added {
			if v.Save < rules.Saves || v.Fetch < len(before.Loads) || v.Release != 0 ||
				v.How == "swap" && v.Slot < alone.Slab {
				t.Errorf("a further value is %+v", v)
			}
			if v.How == "drop" {
				op := rules.Groups[v.Group][0]
				at := after.Ops[op.Name][0]
				if at[0] != op.N || after.Modules[at[1]] != q.Source.Timeline().Trace.Text(
					q.Source.Timeline().Trace.Ops[q.Ops[own.Reruns[0].Ops[0]].Recorded-1].Module) {
					t.Errorf("group %v runs ops at %v", rules.Groups[v.Group], at)
				}
			}
		}
	}
	same := 0
	for i, q := range p.Varied {
		pl, err := Join(p, first, i, everything(t, q))
		if err != nil {
			t.Fatal(err)
		}
		if pl == first {
			same++
		}
	}
	if same != describeTries-1 {
		t.Errorf("%d of %d other steps get no rules of their own", same, len(p.Varied))
	}
}
