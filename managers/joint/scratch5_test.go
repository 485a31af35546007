package joint

import (
	"context"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/gmemtop/gmemtop/managers/plan"
)

func TestScratchLook(t *testing.T) {
	if os.Getenv("LOOK") == "" {
		t.Skip("LOOK")
	}
	p := netProblem(t, "resnet50", 12e9)
	m := compile(p)
	b := m.floor + (m.peak*95/100-m.floor)*1/9
	f := newFinder(context.Background(), p, plan.Request{Budget: b}, mechanisms{})
	s := f.s
	for i := range s.limit {
		s.limit[i] = b
	}
	f.rnd = rand.New(rand.NewPCG(1, 2))
	show := func(what string) {
		var redo, copies int64
		for i := range s.redo {
			redo += s.redo[i]
		}
		ns, nd := 0, 0
		for g := range m.gaps {
			switch s.eff[g] {
			case swap:
				ns++
				copies += m.gaps[g].out + m.gaps[g].in
			case drop:
				nd++
			}
		}
		t.Logf("%s: over %d time %s redo %s stall %s copies %s swaps %d drops %d", what, s.over, pct(s.time, m.baseTime), pct(redo, m.baseTime), pct(s.stall, m.baseTime), pct(copies, m.baseTime), ns, nd)
	}
	f.c.forget()
	for _, be := range []bool{false, true} {
		for _, l := range []float64{-1, 0, 0.03, 0.1, 0.2, 0.5, 1, 3} {
			f.c.forget()
			f.c.choose(prices{link: l, redo: 1, byExcess: be})
			s.run()
			show(pct(int64(l*1000), 1000))
			for range 6 {
				f.c.learn()
				f.c.choose(prices{link: l, redo: 1, byExcess: be})
				s.run()
				show("   learned")
			}
		}
	}
	c := f.search()
	s.set(c)
	show("search")
	for i := range m.n {
		if s.wait[i]+s.redo[i] > m.baseTime/400 {
			t.Logf("pos %d %s wait %s redo %s load %s spare %s operands %s", i, p.Ops[i].Name, pct(s.wait[i], m.baseTime), pct(s.redo[i], m.baseTime), pct(s.load[i], b), pct(s.spare[i], b), pct(m.operands[i], b))
		}
	}
}
