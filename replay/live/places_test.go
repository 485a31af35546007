package live

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/traces"
)

// What a module saves is counted by itself and anew after each backward pass, and a load is of the newest
// save of its tensor. Ops are written as module:op, saves and loads with their tensor's letter.
func TestAPlaceIsAModuleAPassAndACount(t *testing.T) {
	tr := &traces.Trace{Strings: []string{"", plan.SaveOp, plan.LoadOp, "m", "n", "mul"}}
	text := func(s string) traces.StringID { return traces.StringID(slices.Index(tr.Strings, s)) }
	var own []traces.OpID
	for at, word := range strings.Fields("m:mul m+a m+b n+a -a -b -a m+b n:mul m:mul m+a -a -b") {
		id := traces.OpID(len(tr.Ops))
		op := traces.Op{Start: int64(at), Phase: traces.PhaseForward}
		switch module, what, _ := strings.Cut(word, ":"); {
		case what != "":
			op.Module, op.Name = text(module), text(what)
		case word[0] == '-':
			op.Name, op.Phase = text(plan.LoadOp), traces.PhaseBackward
		default:
			op.Module, op.Name = text(word[:1]), text(plan.SaveOp)
		}
		if op.Name != text("mul") {
			tr.Accesses = append(tr.Accesses, traces.Access{Op: id, Addr: uint64(word[len(word)-1])})
		}
		tr.Ops, own = append(tr.Ops, op), append(own, id)
	}
	got := placesOf(tr, own)
	var saves []string
	for _, x := range got.saves {
		saves = append(saves, fmt.Sprint(x.module, x.passes, x.n))
	}
	if want := "m0 0 m0 1 n0 0 m1 0 m1 1"; strings.Join(saves, " ") != want {
		t.Errorf("saves at %q, want %q", saves, want)
	}
	if want := []int{2, 1, 0, 4, 3}; !slices.Equal(got.loads, want) {
		t.Errorf("loads of the saves %v, want %v", got.loads, want)
	}
	for id, want := range map[traces.OpID]place{0: {op: "mul", module: "m"},
		8: {op: "mul", module: "n", passes: 1}, 9: {op: "mul", module: "m", passes: 1}} {
		if got.ops[id] != want {
			t.Errorf("op %d at %v, want %v", id, got.ops[id], want)
		}
	}
}

// elsewhere returns the recording with another last op in its second step, and a save of that step in a
// module that the first one does not run.
func elsewhere(t *testing.T) *traces.Trace {
	t.Helper()
	tr := recording(t, triedCosts)
	second := tr.Marks[len(tr.Marks)-1].Start
	save := slices.IndexFunc(tr.Ops, func(op traces.Op) bool {
		return op.Start >= second && tr.Text(op.Name) == plan.SaveOp
	})
	tr.Strings = append(slices.Clone(tr.Strings), "aten::other", "other")
	tr.Ops[len(tr.Ops)-1].Name = traces.StringID(len(tr.Strings) - 2)
	tr.Ops[save].Module = traces.StringID(len(tr.Strings) - 1)
	return tr
}

// If the steps of five captures save tensors at different places, the result is the largest of their last
// steps, with all others. Its plan names places, and has to keep the budget in each of the steps.
func TestStepsThatSaveElsewhereArePlannedForTogether(t *testing.T) {
	d := &drifting{tr: elsewhere(t)}
	p, err := NewTarget(d, Options{}).Problem(t.Context(), Hardware{Chosen: true})
	if err != nil {
		t.Fatal(err)
	}
	asked := describeTries + len([]string{"on", "10 with", "10 with", "10 with", "10 with", "off"})
	if len(p.Varied) != describeTries*DescribedSteps-1 || len(d.asked) != asked {
		t.Fatalf("%d other steps, and the training was asked %q", len(p.Varied), d.asked)
	}
	if !slices.ContainsFunc(p.Notes, func(n string) bool {
		return strings.Contains(n, "steps run different ops: planned for the largest of 50 steps")
	}) {
		t.Errorf("its notes are %q", p.Notes)
	}
	var decided plan.Decisions
	for _, g := range p.Gaps(1, 1) {
		decided.Absences = append(decided.Absences, plan.Absence{Buffer: g.Buffer, After: g.After,
			Release: g.After + 1, Fetch: g.Before, Before: g.Before, How: plan.Swap})
	}
	pl, err := plan.Assemble(p, decided)
	if err != nil || len(decided.Absences) == 0 {
		t.Fatal(len(decided.Absences), err)
	}
	pl.Executor = plan.TorchEager
	rules, err := rulesOf(p, pl, Same, true)
	if err != nil {
		t.Fatal(err)
	}
	if rules.Places == nil || len(rules.Places.Saves) != rules.Saves ||
		!slices.Contains(rules.Places.Modules, "other") {
		t.Fatalf("the plan's places are %+v", rules.Places)
	}
	e := encoder{p: p, pl: pl}
	if err := e.number(); err != nil {
		t.Fatal(err)
	}
	stays, saved := e.kept(leaving(pl.Absences))
	if len(rules.Sizes) != 2 || rules.Sizes[1] != saved || rules.Sizes[0] <= stays || stays >= saved {
		t.Errorf("a step keeps %d of %d bytes, in the process at most %v: what has no place stays", stays,
			saved, rules.Sizes)
	}
	with, _ := pl.PeakLive()
	most := int64(0)
	for _, q := range p.Varied {
		held, err := heldIn([]*encoder{&e}, q)
		if err != nil {
			t.Fatal(err)
		}
		most = max(most, held)
	}
	if most < with || most > p.Held() {
		t.Errorf("other steps hold up to %d bytes under the plan, the largest %d, without the plan %d", most,
			with, p.Held())
	}
	above := (*Above)(nil)
	if err := fitsEach(p, pl, most-1); !errors.As(err, &above) || !above.Other || above.Takes != most {
		t.Errorf("in a byte less: %v", err)
	}
	if err := fitsEach(p, pl, most); err != nil {
		t.Error(err)
	}
}

// Steps that keep more than any that was described leave room for as much in the next plan.
func TestRoomIsLeftForStepsThatKeepMore(t *testing.T) {
	d := &drifting{tr: elsewhere(t), larger: 1, sizes: []int64{1 << 30, 1 << 30}}
	p, err := NewTarget(d, Options{}).Problem(t.Context(), Hardware{Chosen: true})
	if err != nil {
		t.Fatal(err)
	}
	e := encoder{p: p}
	if err := e.number(); err != nil {
		t.Fatal(err)
	}
	_, saved := e.kept(nil)
	if room := spareRoom(p); room != 1<<30-saved {
		t.Errorf("room for %d bytes, where described steps keep %d of %d", room, saved, 1<<30)
	}
	q, err := grown(p, &plan.Plan{}, []int64{1<<30 + 7, 1<<30 + 5})
	if err != nil {
		t.Fatal(err)
	}
	if more := spareRoom(q) - spareRoom(p); more != 7 {
		t.Errorf("a step of 7 bytes more gets %d", more)
	}
}

// Two steps may be alike by chance. If the plan made for them ends since it does not fit, further captures
// are compared with each other.
func TestAPlanThatDidNotFitMakesCapturesBeCompared(t *testing.T) {
	for _, c := range []struct {
		ended, others bool
		asked, varied int
	}{{false, true, 1, 0}, {true, false, suspectTries, 0}, {true, true, describeTries, 2*describeTries - 1}} {
		moved := recording(t, triedCosts)
		moved.Strings = append(slices.Clone(moved.Strings), "other")
		for i := range moved.Ops {
			if op := &moved.Ops[i]; c.others && moved.Text(op.Name) == plan.SaveOp {
				op.Module = traces.StringID(len(moved.Strings) - 1)
			}
		}
		d := &uneven{drifting{tr: recording(t, triedCosts)}, func() *traces.Trace { return moved }, 2}
		target := NewTarget(d, Options{NeverWithout: true})
		target.ended = c.ended
		p, err := target.Problem(t.Context(), Hardware{Chosen: true})
		if err != nil {
			t.Fatal(err)
		}
		if len(d.asked) != c.asked || len(p.Varied) != c.varied {
			t.Errorf("%+v: asked %q, %d other steps", c, d.asked, len(p.Varied))
		}
	}
}

// A plan that ends by itself, other than by its budget, makes the next captures be compared.
func TestATargetRemembersThatAPlanEnded(t *testing.T) {
	tr := recording(t, triedCosts)
	p, pl := swapsAll(t, tr)
	target := NewTarget(&drifting{tr: tr, fail: errors.New("it saves other tensors")}, Options{})
	if err := target.Hold(t.Context(), p, Made{Plan: pl}, func(News) {}); err == nil || !target.ended {
		t.Errorf("it ended with %v, and that it did is %v", err, target.ended)
	}
}
