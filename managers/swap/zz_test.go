package swap

import (
	"fmt"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/replay/sim"
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/traces"
	"testing"
	"time"
)

func paperProblem(t testing.TB) *plan.Problem {
	r := paperRecording(t)
	p := &plan.Problem{Name: "vgg", Kind: traces.Accesses, Align: 1, Streams: 1, HasTimes: true}
	p.Hardware = plan.Hardware{Name: "paper", D2H: plan.Link{BytesPerSecond: 1e9 / 0.0756, Latency: 47200}, H2D: plan.Link{BytesPerSecond: 1e9 / 0.0823, Latency: 9700}, Together: 1}
	type live struct{ id plan.BufferID }
	cur := map[uint64]plan.BufferID{}
	// blocks alive at the start: those touched before period end without malloc
	lo, hi := r.Period, 2*r.Period
	born := map[uint64]bool{}
	for i := 0; i < lo; i++ {
		switch r.Ops[i].Kind {
		case OpFree:
			delete(born, r.Ops[i].Addr)
		default:
			born[r.Ops[i].Addr] = true
		}
	}
	sizes := map[uint64]int64{}
	for i := 0; i < hi; i++ {
		if r.Ops[i].Size > 0 {
			sizes[r.Ops[i].Addr] = r.Ops[i].Size
		}
	}
	seen := map[uint64]bool{}
	for i := 0; i < lo; i++ {
		a := r.Ops[i].Addr
		if born[a] && !seen[a] {
			seen[a] = true
			cur[a] = plan.BufferID(len(p.Buffers))
			p.Buffers = append(p.Buffers, plan.Buffer{Name: fmt.Sprint(len(p.Buffers)), Size: sizes[a], Start: 0, End: -1, Alloc: timeline.NoAlloc})
		}
	}
	n := len(p.Buffers)
	for i := lo; i < hi; i++ {
		o := &r.Ops[i]
		k := plan.OpID(i - lo)
		op := plan.Op{Name: "op", Workspace: plan.NoBuffer, First: int32(len(p.Accesses)), Duration: r.Ops[i+1].Time - o.Time}
		switch o.Kind {
		case OpMalloc:
			cur[o.Addr] = plan.BufferID(len(p.Buffers))
			p.Buffers = append(p.Buffers, plan.Buffer{Name: fmt.Sprint(len(p.Buffers)), Size: o.Size, Start: k, End: -1, Alloc: timeline.NoAlloc})
		case OpFree:
			if b, ok := cur[o.Addr]; ok {
				if k > p.Buffers[b].Start {
					p.Buffers[b].End = k
				} else {
					p.Buffers[b].End = k + 1
				}
				delete(cur, o.Addr)
			}
		default:
			if b, ok := cur[o.Addr]; ok {
				m := plan.Use
				if o.Kind == OpRead {
					m = plan.Read
				}
				if o.Kind == OpMutable {
					m = plan.Mutate
				}
				p.Accesses = append(p.Accesses, plan.Access{Buffer: b, Mode: m})
			}
		}
		op.End = int32(len(p.Accesses))
		p.Ops = append(p.Ops, op)
	}
	for i := range p.Buffers {
		b := &p.Buffers[i]
		if b.End < 0 {
			if i < n {
				b.Life = plan.Persistent
			}
			b.End = plan.OpID(len(p.Ops))
		}
	}
	if err := p.Finish(); err != nil {
		t.Fatal(err)
	}
	return p
}
func TestZZ(t *testing.T) {
	p := paperProblem(t)
	peak, at := p.PeakLive()
	floor := p.MustReside().Total()
	fmt.Println("peak", float64(peak)/(1<<20), at, "floor", floor>>20, "persist", p.MustReside().Persistent>>20, "iter ms", float64(p.Starts()[len(p.Ops)])/1e6)
	for _, b := range []int64{500 << 20, 450 << 20, 370 << 20, 320 << 20} {
		for _, m := range append(All()[8:], tvdnn{whole: true}, tvdnn{whole: true, ilp: true}, tvdnn{section: 2 << 20}) {
			began := time.Now()
			pl, err := m.Plan(t.Context(), p, plan.Request{Budget: b, Evaluator: sim.Simulator{}})
			if err != nil {
				fmt.Println(err)
				continue
			}
			if err := plan.Validate(p, pl); err != nil {
				t.Fatal(err)
			}
			x, _ := sim.Simulator{}.Evaluate(t.Context(), p, pl)
			l, _ := pl.PeakLive()
			fmt.Printf("%4dM %-16s fits %-5v foot %6.2f live %6.2f step %8.2f ms stall %8.2f moved %6d MiB  %v %v\n", b>>20, m.Info().Name, pl.Footprint <= b, float64(pl.Footprint)/(1<<20), float64(l)/(1<<20), float64(x.StepTime)/1e6, float64(x.Stall)/1e6, (x.SwappedIn+x.SwappedOut)>>20, time.Since(began).Round(time.Millisecond), pl.Notes)
		}
	}
}
