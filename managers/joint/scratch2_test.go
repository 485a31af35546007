package joint

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/gmemtop/gmemtop/managers/networks"
	"github.com/gmemtop/gmemtop/managers/place"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/replay/sim"
)

func netProblem(t *testing.T, name string, link float64) *plan.Problem {
	n, err := networks.ByName(name)
	if err != nil {
		t.Fatal(err)
	}
	p, err := n.Problem(n.Batches[0], plan.Hardware{Name: "made up", Origin: "tests", MemoryBytes: 32 << 30, D2H: plan.Link{BytesPerSecond: link, Latency: 10_000},
		H2D: plan.Link{BytesPerSecond: link, Latency: 10_000}, Together: 1, FlopsPerSecond: 12e12, FlopsType: "float32", BytesPerSecond: 800e9}, networks.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestScratchNet(t *testing.T) {
	name := os.Getenv("NET")
	if name == "" {
		t.Skip("NET")
	}
	p := netProblem(t, name, 12e9)
	m := compile(p)
	for k := range 10 {
		b := m.floor + (m.peak*95/100-m.floor)*int64(9-k)/9
		f := newFinder(context.Background(), p, plan.Request{Budget: b, Evaluator: sim.Simulator{}}, mechanisms{})
		s := f.s
		for i := range s.limit {
			s.limit[i] = b
		}
		f.rnd = rand.New(rand.NewPCG(1, 2))
		began := time.Now()
		c := f.search()
		took := time.Since(began)
		s.set(c)
		line := ""
		bd := newBounder(m)
		for _, turns := range []int{30, 100, 300, 1000} {
			began := time.Now()
			line += "bound " + pct(bd.bound(b, turns), m.baseTime) + " in " + time.Since(began).String() + " | "
		}
		for _, rule := range []place.Rule{place.BestFit, place.FirstFit, place.Search} {
			pl, err := plan.Assemble(p, s.decisions())
			if err != nil {
				t.Fatal(err)
			}
			live, _ := pl.PeakLive()
			began := time.Now()
			res, err := place.Place(context.Background(), p, pl, place.Options{Rule: rule, Capacity: b, Work: 20000})
			if err != nil {
				t.Fatal(err)
			}
			me, err := sim.Run(context.Background(), p, pl, sim.Options{})
			if err != nil {
				t.Fatal(err)
			}
			line += pct(live, b) + " " + pct(pl.Footprint, b) + " " + pct(me.StepTime, m.baseTime) + " stall " + pct(me.Stall, m.baseTime) + " in " + time.Since(began).Round(time.Millisecond).String() + " work " + pct(res.Work, 100) + " | "
		}
		t.Logf("%s: over %d est %s work %d in %v: %s", pct(b, m.peak), s.over, pct(s.time, m.baseTime), f.work, took, line)
	}
}

func pct(a, b int64) string {
	return fmt.Sprintf("%.2f", float64(a)/float64(b)*100)
}
