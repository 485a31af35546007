package live

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/traces/described"
)

// A module makes z and returns it. It saves s, which it made from z, and a plan makes s again. What happens
// with z between the two passes is the program's affair.
func TestWhatTheProgramMayChangeHasABackupOrIsNotReadAgain(t *testing.T) {
	for _, x := range []struct {
		name    string
		size    int64  // of z
		saved   string // the tensors that autograd saves: x before the op that makes z, "late" after it
		rerun   bool   // z's op can run again
		kept    string // how long the program keeps z: no longer than it must, until the step's end, "next"
		backups string
		again   bool // s may be made again
		both    bool // and with it z
	}{
		{"its op can run again", 2 << 20, "x", true, "end", "[[{aten::mm 0}]]", true, false},
		{"the next step frees it", 2 << 20, "x", true, "next", "[[{aten::mm 0}]]", true, false},
		{"its op runs again anyway", 2 << 20, "x", true, "end", "[]", true, true},
		{"its op draws random numbers", 2 << 20, "x", false, "end", "[]", false, false},
		{"its op draws random numbers, and it is small", 64, "x", false, "end", "[]", true, false},
		{"nobody keeps it", 2 << 20, "x", false, "", "[]", true, false},
		{"autograd saves it too", 2 << 20, "x z", false, "end", "[]", true, false},
		{"its input is not saved", 2 << 20, "", true, "end", "[[{aten::add 0} {aten::mm 0}]]", true, false},
		{"its input is saved later", 2 << 20, "late", true, "end", "[[{aten::add 0} {aten::mm 0}]]", true,
			false},
	} {
		t.Run(x.name, func(t *testing.T) {
			p, e := returned(t, x.size, x.saved, x.rerun, x.kept)
			tanh := slices.IndexFunc(p.Ops, func(o plan.Op) bool { return o.Name == "aten::tanh" })
			if p.Ops[tanh].Rerunnable != x.again {
				t.Errorf("s may be made again: %v", !x.again)
			}
			if !x.again {
				return
			}
			again := plan.Rerun{Before: plan.OpID(len(p.Ops) - 1), Ops: []plan.OpID{plan.OpID(tanh)}}
			if x.both {
				mm := slices.IndexFunc(p.Ops, func(o plan.Op) bool { return o.Name == "aten::mm" })
				again.Ops = []plan.OpID{plan.OpID(mm), plan.OpID(tanh)}
			}
			e.pl = &plan.Plan{Reruns: []plan.Rerun{again}}
			if err := e.number(); err != nil {
				t.Fatal(err)
			}
			if err := e.groups(); err != nil {
				t.Fatal(err)
			}
			if got := fmt.Sprint(e.out.Backups); got != x.backups {
				t.Errorf("backups %s, want %s", got, x.backups)
			}
			if e.out.Copies < 4<<10 || e.out.Copies > 1<<20 {
				t.Errorf("copies tensors of up to %d bytes", e.out.Copies)
			}
		})
	}
}

// returned describes two steps of such a module, whose z is made from x, and x from a parameter.
func returned(t *testing.T, size int64, saved string, rerun bool, kept string) (*plan.Problem, *encoder) {
	t.Helper()
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line(`{"gmemtop":"described","version":1,"torch":"2.9.0","device":"cpu","pid":7,"rank":-1,` +
		`"world_size":-1,"epoch_ns":1,"steps":[[0,40000000],[40000000,80000000]]}`)
	line(`{"k":"alloc","id":1,"size":8388608,"addr":1048576,"t":0,"category":"parameter","on":"cpu"}`)
	for step := range 2 {
		at := step * 40_000_000
		id := map[string]int{"w": 1, "x": 10*step + 10, "z": 10*step + 11, "s": 10*step + 12}
		op := func(name, phase, module, r, w string, again bool) {
			at += 2_000_000
			line(`{"k":"op","t":%d,"d":1000000,"name":%q,"phase":%q,"module":%q,"r":[%d],"w":[%s],"m":[],`+
				`"rerun":%v}`, at, name, phase, module, id[r], w, again)
		}
		make := func(name, r, w string, size int64, again bool) {
			line(`{"k":"alloc","id":%d,"size":%d,"addr":%d,"t":%d,"category":"activation","on":"cpu"}`, id[w],
				size, (id[w]+1)<<24, at+2_000_000)
			op(name, "forward", "layer", r, fmt.Sprint(id[w]), again)
		}
		free := func(what string) { line(`{"k":"free","id":%d,"t":%d}`, id[what], at+1_500_000) }
		make("aten::add", "w", "x", 2<<20, true)
		if strings.Contains(saved, "x") {
			op(plan.SaveOp, "forward", "layer", "x", "", false)
		}
		make("aten::mm", "x", "z", size, rerun)
		make("aten::tanh", "z", "s", 2<<20, true)
		if saved == "late" {
			op(plan.SaveOp, "forward", "layer", "x", "", false)
		}
		if strings.Contains(saved, "z") {
			op(plan.SaveOp, "forward", "layer", "z", "", false)
		}
		op(plan.SaveOp, "forward", "layer", "s", "", false)
		if kept == "" {
			free("z")
		}
		if kept == "next" && step > 0 {
			line(`{"k":"free","id":%d,"t":%d}`, id["z"]-10, at+1_500_000)
		}
		op(plan.LoadOp, "backward", "", "s", "", false)
		op("aten::tanh_backward", "backward", "", "s", "", false)
		free("s")
		free("x")
		if kept == "end" {
			free("z")
		}
	}
	tr, err := described.Read(context.Background(), strings.NewReader(b.String()), nil)
	if err != nil {
		t.Fatal(err)
	}
	h := Hardware{Chosen: true, Hardware: plan.Hardware{Name: "any"}}
	p, err := step(t.Context(), tr, h, plan.LastIteration)
	if err != nil {
		t.Fatal(err)
	}
	return p, &encoder{p: p}
}
