package joint

import (
	"context"
	"math/rand/v2"
	"testing"

	"github.com/gmemtop/gmemtop/managers/place"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/replay/sim"
)

func TestScratchStall(t *testing.T) {
	p := netProblem(t, "GPT-2 small", 12e9)
	m := compile(p)
	b := m.floor + (m.peak*95/100-m.floor)*5/9
	f := newFinder(context.Background(), p, plan.Request{Budget: b, Evaluator: sim.Simulator{}}, mechanisms{})
	s := f.s
	for i := range s.limit {
		s.limit[i] = b
	}
	f.rnd = rand.New(rand.NewPCG(1, 2))
	c := f.search()
	s.set(c)
	pl, _ := plan.Assemble(p, s.decisions())
	place.Place(context.Background(), p, pl, place.Options{Rule: place.BestFit})
	me, _ := sim.Run(context.Background(), p, pl, sim.Options{Spans: true})
	t.Logf("est %d sim %d stall %d", s.time, me.StepTime, me.Stall)
	for _, sp := range me.Spans {
		if sp.Stall && sp.End-sp.Start > 100000 {
			st := pl.Steps[sp.Step]
			t.Logf("stall %d at %d before step %d %v op %d %s est start %d", sp.End-sp.Start, sp.Start, sp.Step, st.Kind, st.Op, p.Ops[st.Op].Name, s.start[st.Op])
			for k := sp.Step - 1; k > sp.Step-6; k-- {
				x := pl.Steps[k]
				if x.Kind == plan.Wait {
					on := pl.Steps[x.On]
					t.Logf("  wait q%d on step %d %v op %d inst %d buf %s", x.Queue, x.On, on.Kind, on.Op, on.Instance, p.Buffers[pl.Instances[on.Instance].Buffer].Name)
				}
			}
		}
	}
}
