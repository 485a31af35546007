package joint

import (
	"context"
	"testing"

	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/managers/plan/plantest"
	"github.com/gmemtop/gmemtop/replay/sim"
)

func TestScratchFit(t *testing.T) {
	overs, frag, ok := 0, 0, 0
	var lost, worst float64
	for seed := range uint64(40) {
		p := plantest.Random(seed, 8+int(seed%60))
		m := compile(p)
		for k := range 5 {
			b := m.floor + (m.peak-m.floor)*int64(k)/5
			f := newFinder(context.Background(), p, plan.Request{Budget: b, Evaluator: sim.Simulator{}}, mechanisms{})
			x, err := f.rung(b)
			if err != nil {
				t.Fatal(err)
			}
			live, _ := x.pl.PeakLive()
			switch {
			case x.pl.Footprint <= b:
				ok++
			case live > b:
				overs++
				t.Logf("seed %d k %d: over %d load %d footprint %d limit %d floor %d", seed, k, f.s.over, live, x.pl.Footprint, b, m.floor)
			default:
				frag++
				w := float64(x.pl.Footprint-b) / float64(b)
				lost += w
				worst = max(worst, w)
			}
		}
	}
	t.Logf("ok %d over %d fragmented %d by %.4f mean %.4f worst", ok, overs, frag, lost/float64(frag+1), worst)
}
