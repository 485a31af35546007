package joint

import (
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/managers/plan/plantest"
	"github.com/gmemtop/gmemtop/replay/sim"
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/traces"
)

// The example: five forward ops, a loss and their backward ops. A column of the drawing is a millisecond, a
// row of memory is a MiB.
const (
	millisecond = 1_000_000 // nanoseconds
	copying     = 4         // columns that a copy of a MiB takes
	mib         = 1 << 20
)

func walkthroughProblem() *plan.Problem {
	b := plantest.New()
	b.P.Hardware.D2H = plan.Link{BytesPerSecond: mib * 1e9 / (copying * millisecond)}
	b.P.Hardware.H2D = b.P.Hardware.D2H
	ids := map[string]plan.BufferID{}
	op := func(name string, columns int64, reads, writes string) {
		var touched [2][]plan.BufferID
		for k, names := range []string{reads, writes} {
			for _, n := range strings.Fields(names) {
				if _, ok := ids[n]; !ok {
					ids[n] = b.Buffer(n, mib, timeline.Activation)
				}
				touched[k] = append(touched[k], ids[n])
			}
		}
		id := b.Op(name, traces.PhaseForward, columns*millisecond, touched[0], touched[1])
		b.P.Ops[id].Rerunnable = name[0] == 'f'
	}
	op("in", 1, "", "x")
	op("f1", 3, "x", "a")
	op("f2", 1, "a", "b")
	op("f3", 3, "b", "c")
	op("f4", 2, "c", "d")
	op("loss", 2, "d", "g4")
	op("b4", 3, "g4 c", "g3")
	op("b3", 3, "g3 b", "g2")
	op("b2", 3, "g2 a", "g1")
	op("b1", 3, "g1 x", "")
	return b.End()
}

// TestTheWalkthroughIsDrawnAsItIsPlanned draws one small problem through all parts of the planner.
func TestTheWalkthroughIsDrawnAsItIsPlanned(t *testing.T) {
	const file = "testdata/walkthrough.txt"
	p := walkthroughProblem()
	const budget = 4 * mib
	r := plan.Request{Budget: budget, Seed: 7, Work: 300_000, Evaluator: sim.Simulator{}}
	f, err := newFinder(t.Context(), p, r, mechanisms{}, defaults())
	if err != nil {
		t.Fatal(err)
	}
	d := drawing{v: f.views[0]}
	v, s := d.v, d.v.schedule

	d.printf(
		"1. The problem (model.go). Ops with their times in ms, and the MiB alive during each if all is kept:\n\n",
	)
	d.printf("   op  ")
	for i := range p.Ops {
		d.printf("%5s", p.Ops[i].Name)
	}
	d.printf("\n   ms  ")
	for i := range p.Ops {
		d.printf("%5d", p.Ops[i].Duration/millisecond)
	}
	d.load(v.m.load[:v.m.n], budget)
	d.printf(
		"\n   The idle intervals, and what ending each absence costs in ms: a copy each way, or the chain that\n" +
			"   runs again, where one can.\n\n",
	)
	for _, g := range v.m.choices {
		x := &v.m.gaps[g]
		d.printf(
			"   %-2s  %s  copies %d + %d",
			p.Buffers[x.buffer].Name,
			d.interval(x),
			x.evictTime/millisecond,
			x.prefetchTime/millisecond,
		)
		if x.canRecompute {
			d.printf(", chain %d", x.chainTime/millisecond)
		}
		d.printf("\n")
	}

	bound := f.bound(budget)
	d.printf(
		"\n2. The bound (bound.go). Within %d MiB no plan is faster than %.1f ms, %.1f with all kept. It is\n"+
			"   proven at the start of %s. What a ms of copying is worth there, by the op that wrote or reads; one\n"+
			"   of compute is worth %.2f:\n\n",
		budget/mib,
		ms(bound),
		ms(v.m.baseTime),
		p.Ops[f.bounder.dual.at].Name,
		f.bounder.dual.compute,
	)
	for k, o := range f.bounder.dual.outAt {
		d.printf("   out, written by %-4s %.2f\n", p.Ops[max(o, 0)].Name, f.bounder.dual.out[k])
	}
	for k, o := range f.bounder.dual.inAt {
		d.printf("   in, read by %-8s %.2f\n", p.Ops[o].Name, f.bounder.dual.in[k])
	}

	v.rnd, v.target = rand.New(rand.NewPCG(r.Seed, budget)), bound
	v.applyMargin(budget, 0)
	v.cover.costs.forget()
	v.cover.choose(prices{copy: 1, recompute: 1, dual: &f.bounder.dual}, nil)
	s.run()
	d.printf(
		"\n3. First choices (cover.go), cheapest for their bytes first under these prices, and their schedule\n" +
			"   (schedule.go):\n\n",
	)
	d.schedule(budget)

	v.until = s.steps + f.rungWork
	best := v.search(nil, f.rungWork)
	s.runAs(best)
	d.printf(
		"\n4. The search (search.go) tries other prices, then changes a few choices at a time, and comes to:\n\n",
	)
	d.schedule(budget)

	pl, err := f.find(func(*finder) {})
	if err != nil {
		t.Fatal(err)
	}
	m, err := sim.Run(t.Context(), p, pl, sim.Options{})
	if err != nil {
		t.Fatal(err)
	}
	d.printf(
		"\n5. The ladder (ladder.go) plans for the rungs that lead to the budget, and for lower ones to see\n" +
			"   whether less memory does:\n\n",
	)
	d.rungs(f)
	d.printf("\n   The plan's places (realize.go), a row for each MiB, a column for each step:\n\n")
	d.places(p, pl)
	d.printf(
		"\n   footprint %d MiB, step %.1f ms, bound %.1f ms\n",
		pl.Footprint/mib,
		ms(m.StepTime),
		ms(pl.StepBound),
	)

	got := regexp.MustCompile(" +\n").ReplaceAllString(d.String(), "\n")
	if update := flag.Lookup("update"); update.Value.String() == "true" {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("the planner draws\n%s\nand %s is\n%s", got, file, want)
	}
}

func ms(ns int64) float64 { return float64(ns) / millisecond }

// drawing is the text of the walkthrough as it grows.
type drawing struct {
	strings.Builder
	v *view
}

func (d *drawing) printf(format string, args ...any) { fmt.Fprintf(d, format, args...) }

// load draws what is alive during each op as columns of MiB, and the limit.
func (d *drawing) load(load []int64, limit int64) {
	d.printf("\n\n")
	top := limit
	for _, x := range load {
		top = max(top, x)
	}
	for level := top; level > 0; level -= mib {
		d.printf("   %d MiB", level/mib)
		for _, x := range load {
			c := " "
			if x >= level {
				c = "#"
			}
			d.printf("%5s", c)
		}
		if level == limit {
			d.printf("   <- limit")
		}
		d.printf("\n")
	}
}

// interval draws an idle interval over the ops.
func (d *drawing) interval(x *gap) string {
	var b strings.Builder
	for i := range plan.OpID(d.v.m.n) {
		c := "    ."
		switch {
		case i == x.after || i == x.before:
			c = "    o"
		case x.after < i && i < x.before:
			c = "-----"
		}
		if i == x.before {
			c = "----o"
		}
		b.WriteString(c)
	}
	return b.String()
}

// schedule draws the queues over time, a column a millisecond, then memory.
func (d *drawing) schedule(limit int64) {
	s, p := d.v.schedule, d.v.p
	width := int(s.queues.time/millisecond) + 1
	row := func(name string, draw func(put func(from, to int64, text string))) {
		line := []byte(strings.Repeat(".", width))
		draw(func(from, to int64, text string) {
			for k := from / millisecond; k < (to+millisecond/2)/millisecond; k++ {
				line[k] = '='
			}
			copy(line[from/millisecond:], text)
		})
		d.printf("   %-8s%s\n", name, line)
	}
	row("compute", func(put func(from, to int64, text string)) {
		for i := range d.v.m.n {
			if again := s.chains.rerunTime[i]; again > 0 {
				put(s.queues.start[i]-again, s.queues.start[i], "R")
			}
			put(s.queues.start[i], s.queues.end[i], p.Ops[i].Name[:1])
		}
	})
	row("out", func(put func(from, to int64, text string)) {
		for _, g := range s.prefetches.order {
			x := &d.v.m.gaps[g]
			put(s.queues.evicted[g]-x.evictTime, s.queues.evicted[g], p.Buffers[x.buffer].Name)
		}
	})
	row("in", func(put func(from, to int64, text string)) {
		for _, g := range s.prefetches.order {
			x := &d.v.m.gaps[g]
			put(s.queues.prefetched[g]-x.prefetchTime, s.queues.prefetched[g], p.Buffers[x.buffer].Name)
		}
	})
	d.printf("\n")
	for g := range d.v.m.gaps {
		x := &d.v.m.gaps[g]
		how := [...]string{"", "swapped", "recomputed", "discarded"}[s.absences.how[g]]
		if how != "" {
			d.printf(
				"   %s is %s: it leaves before %s and is taken back before %s, for %s\n",
				p.Buffers[x.buffer].Name,
				how,
				p.Ops[s.absences.release[g]].Name,
				p.Ops[s.absences.fetch[g]].Name,
				p.Ops[x.before].Name,
			)
		}
	}
	for _, r := range s.chains.reruns {
		d.printf("   before %s run again:", p.Ops[r.at].Name)
		for _, o := range s.chains.ops[r.from:r.to] {
			d.printf(" %s", p.Ops[o].Name)
		}
		d.printf("\n")
	}
	d.printf(
		"   %.1f ms, of which compute waits %.1f; %d MiB over the limit",
		ms(s.queues.time),
		ms(s.queues.stall),
		s.over/mib,
	)
	load := make([]int64, d.v.m.n)
	for i := range load {
		load[i] = max(s.memory.load[i], s.memory.rerunPeak[i])
	}
	d.load(load, limit)
}

// places draws the addresses of a plan's instances over its steps.
func (d *drawing) places(p *plan.Problem, pl *plan.Plan) {
	for at := pl.Footprint - mib; at >= 0; at -= mib {
		line := []byte(strings.Repeat(".", 2*len(pl.Steps)))
		for k := range pl.Instances {
			if x := &pl.Instances[k]; x.Offset <= at && at < x.Offset+x.Size {
				for s := max(x.From, 0); s < x.To; s++ {
					line[2*s], line[2*s+1] = '-', '-'
				}
				copy(line[2*max(x.From, 0):], p.Buffers[x.Buffer].Name)
			}
		}
		d.printf("   %d MiB  %s\n", at/mib, line)
	}
}

// rungs lists the results of the planned rungs; rungs with the same result share a line.
func (d *drawing) rungs(f *finder) {
	said := func(at int) string {
		if x := f.ladder.known[at].best; x != nil {
			return fmt.Sprintf("%.1f ms in %d MiB", ms(x.time), x.pl.Footprint/mib)
		}
		return "nothing fits"
	}
	at := slices.Sorted(maps.Keys(f.ladder.known))
	for from, to := 0, 0; from < len(at); from = to {
		for to = from; to < len(at) && said(at[to]) == said(at[from]); to++ {
		}
		d.printf("   rungs %4d to %4d, %d planned for: %s\n", at[from], at[to-1], to-from, said(at[from]))
	}
}
