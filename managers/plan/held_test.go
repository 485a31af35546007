package plan_test

import (
	"fmt"
	"slices"
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
		got := p.EagerRefusal(plan.Absence{Buffer: saved[i], After: after, Before: before})
		if got.Held != held || held != strings.Contains(got.Why, "the program itself holds it") ||
			!held && got.Why != "" {
			t.Errorf("%s: %+v", p.Buffers[saved[i]].Name, got)
		}
	}
	if gaps := p.Gaps(1, 1); len(gaps) != 2 || gaps[0].Buffer != saved[0] || gaps[1].Buffer != saved[2] {
		t.Errorf("gaps %+v", gaps)
	}
}

// A module that is called holds its inputs until it returns, so that a plan's memory counts them until then,
// however early they were copied out or dropped.
func TestAnInputOfAModuleIsThereUntilTheModuleReturns(t *testing.T) {
	const held = plan.HeldOp
	for row, want := range map[string]string{"": "aten::tanh", held: "aten::neg"} {
		rows := []string{
			allocRow(0, 512, 0, "parameter"), allocRow(1, 4096, 10, "activation"),
			opRow(10, "aten::relu", "forward", "a", `"r":[0],"w":[1],"m":[]`),
			opRow(110, plan.SaveOp, "forward", "b.0", `"r":[1],"w":[],"m":[]`),
			allocRow(2, 512, 110, "activation"),
			opRow(110, "aten::mm", "forward", "b.0", `"r":[0,1],"w":[2],"m":[]`),
			allocRow(3, 512, 210, "activation"),
			opRow(210, "aten::tanh", "forward", "b.1", `"r":[2],"w":[3],"m":[]`),
			opRow(310, "aten::neg", "forward", "c", `"r":[3],"w":[],"m":[2]`),
			opRow(410, plan.LoadOp, "backward", "", `"r":[1],"w":[],"m":[]`),
			opRow(410, "aten::mm", "backward", "b.0", `"r":[1],"w":[],"m":[0]`),
			`{"k":"free","id":1,"t":520}`,
		}
		if row != "" {
			rows = slices.Insert(rows, 8, opRow(310, row, "forward", "", `"r":[1],"w":[],"m":[]`))
		}
		p := builtFrom(t, describedStep(rows...), plan.BuildOptions{Iteration: 0, EagerOnly: true})
		names := make([]string, len(p.Ops))
		for i := range p.Ops {
			names[i] = p.Ops[i].Name
		}
		at := func(name string) plan.OpID { return plan.OpID(slices.Index(names, name)) }
		x := p.AccessesOf(at(plan.SaveOp))[0].Buffer
		after, before := at("aten::mm"), at(plan.LoadOp)
		if after < 0 || before < 0 || slices.Contains(names, plan.HeldOp) {
			t.Fatalf("ops %q", names)
		}
		pl, err := plan.Assemble(p, plan.Decisions{Absences: []plan.Absence{{Buffer: x, After: after,
			Release: after + 1, Fetch: before, Before: before}}})
		if err != nil {
			t.Fatal(err)
		}
		var freed []string
		for _, s := range pl.Steps {
			if s.Kind == plan.Free && pl.Instances[s.Instance].Buffer == x && int(s.Op) < len(names) {
				freed = append(freed, names[s.Op])
			}
		}
		if len(freed) == 0 || freed[0] != want {
			t.Errorf("its memory is free before %q, want before %s first", freed, want)
		}
	}
}

// What a function or a loop still has a name for where the backward pass needs it frees nothing by leaving.
func TestWhatTheProgramHoldsUntilBackwardNeedsItDoesNotLeave(t *testing.T) {
	for at, leaves := range map[int]bool{4: true, 5: false, 6: false} {
		rows := []string{
			allocRow(0, 512, 0, "parameter"), allocRow(1, 4096, 10, "activation"),
			opRow(10, "aten::relu", "forward", "a", `"r":[0],"w":[1],"m":[]`),
			opRow(110, plan.SaveOp, "forward", "b", `"r":[1],"w":[],"m":[]`),
			opRow(210, "aten::neg", "forward", "b", `"r":[0],"w":[],"m":[]`),
			opRow(310, plan.LoadOp, "backward", "", `"r":[1],"w":[],"m":[]`),
			opRow(410, "aten::mm", "backward", "b", `"r":[1],"w":[],"m":[0]`),
			`{"k":"free","id":1,"t":520}`,
		}
		held := opRow(min(100*at-190, 410), plan.HeldOp, "forward", "", `"r":[1],"w":[],"m":[]`)
		rows = slices.Insert(rows, at, held)
		p := builtFrom(t, describedStep(rows...), plan.BuildOptions{Iteration: 0, EagerOnly: true})
		gaps := p.Gaps(1, 1)
		if leaves != (len(gaps) == 1) {
			t.Errorf("held until row %d: gaps %+v", at, gaps)
		}
	}
}

// describedStep is the recording of one step, of these rows.
func describedStep(rows ...string) string {
	const head = `{"gmemtop":"described","version":1,"torch":"2.9.0","device":"cuda:0","pid":7,"rank":0,` +
		`"world_size":1,"epoch_ns":0,"steps":[[0,1000]]}`
	return head + "\n" + strings.Join(rows, "\n") + "\n"
}

func allocRow(id, size, at int, category string) string {
	return fmt.Sprintf(`{"k":"alloc","id":%d,"size":%d,"t":%d,"category":%q,"on":"cuda:0"}`, id, size, at,
		category)
}

// opRow is an op of a hundred nanoseconds that could run again. touches is what it reads, writes and changes.
func opRow(at int, name, phase, module, touches string) string {
	return fmt.Sprintf(`{"k":"op","t":%d,"d":100,"name":%q,"phase":%q,"module":%q,%s,"rerun":true}`, at, name,
		phase, module, touches)
}
