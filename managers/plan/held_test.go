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
		why := p.EagerRefusal(plan.Absence{Buffer: saved[i], After: after, Before: before})
		if held != strings.Contains(why, "the program itself holds it") || !held && why != "" {
			t.Errorf("%s: %q", p.Buffers[saved[i]].Name, why)
		}
	}
	if gaps := p.Gaps(1, 1); len(gaps) != 2 || gaps[0].Buffer != saved[0] || gaps[1].Buffer != saved[2] {
		t.Errorf("gaps %+v", gaps)
	}
}

// A module that is called holds its inputs until it returns, so that a plan's memory counts them until then,
// however early they were copied out or dropped.
func TestAnInputOfAModuleIsThereUntilTheModuleReturns(t *testing.T) {
	const recorded = `{"gmemtop":"described","version":1,"torch":"2.9.0","device":"cuda:0","pid":7,"rank":0,"world_size":1,"epoch_ns":0,"steps":[[0,1000]]}
{"k":"alloc","id":0,"size":512,"t":0,"category":"parameter","on":"cuda:0"}
{"k":"alloc","id":1,"size":4096,"t":10,"category":"activation","on":"cuda:0"}
{"k":"op","t":10,"d":100,"name":"aten::relu","phase":"forward","module":"a","r":[0],"w":[1],"m":[],"rerun":true}
{"k":"op","t":110,"d":0,"name":"gmemtop::save","phase":"forward","module":"b.0","r":[1],"w":[],"m":[],"rerun":false}
{"k":"alloc","id":2,"size":512,"t":110,"category":"activation","on":"cuda:0"}
{"k":"op","t":110,"d":100,"name":"aten::mm","phase":"forward","module":"b.0","r":[0,1],"w":[2],"m":[],"rerun":true}
{"k":"alloc","id":3,"size":512,"t":210,"category":"activation","on":"cuda:0"}
{"k":"op","t":210,"d":100,"name":"aten::tanh","phase":"forward","module":"b.1","r":[2],"w":[3],"m":[],"rerun":true}
%s{"k":"op","t":310,"d":100,"name":"aten::neg","phase":"forward","module":"c","r":[3],"w":[],"m":[2],"rerun":true}
{"k":"op","t":410,"d":0,"name":"gmemtop::load","phase":"backward","module":"","r":[1],"w":[],"m":[],"rerun":false}
{"k":"op","t":410,"d":100,"name":"aten::mm","phase":"backward","module":"b.0","r":[1],"w":[],"m":[0],"rerun":true}
{"k":"free","id":1,"t":520}
`
	const held = `{"k":"op","t":310,"d":0,"name":"gmemtop::held","phase":"forward","module":"","r":[1],"w":[],"m":[],"rerun":false}` + "\n"
	for rows, want := range map[string]string{"": "aten::tanh", held: "aten::neg"} {
		p := builtFrom(t, fmt.Sprintf(recorded, rows), plan.BuildOptions{Iteration: 0, EagerOnly: true})
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
