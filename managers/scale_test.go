package managers_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"runtime/debug"
	"testing"
	"time"

	"github.com/gmemtop/gmemtop/managers"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/managers/plan/plantest"
	"github.com/gmemtop/gmemtop/replay/sim"
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/traces"
)

// Planning at scale. Recordings of large trainings have 10,000 to 100,000 buffers; what is quadratic anywhere
// between a problem and its plan shows there and nowhere else. The shapes differ in what is large:
//
//	chain   equal layers: a third of all buffers is alive at the peak, all of one size, and their ends are nested
//	gpt     layers of a transformer: a dozen tensors of very different sizes each, half of all buffers alive at the peak, many small ones
//	wide    up to 1,000 buffers alive at once, of sizes over four orders of magnitude, whose ends are in no order
//	random  plantest's random net: several streams, changes in place, workspaces, variants, two dozen buffers alive
var shapes = []struct {
	name  string
	build func(buffers int) *plan.Problem
}{
	{"chain", func(n int) *plan.Problem { return plantest.Chain(n/3, 1<<20, 1_000_000) }},
	{"gpt", gpt},
	{"wide", wide},
	{"random", func(n int) *plan.Problem { return plantest.Random(1, 10*n/16) }},
}

// gpt is a training of transformer layers with a dozen activations each, about n buffers in all.
func gpt(n int) *plan.Problem {
	b := plantest.New()
	b.P.Align = 512
	const unit = 8 << 20
	layer := []struct {
		name  string
		size  int64
		nanos int64
		saved bool // needed by the backward pass
	}{
		{"norm1", unit, 200_000, true}, {"mean1", 32 << 10, 10_000, true}, {"qkv", 3 * unit, 3_000_000, true},
		{"scores", 4*unit + 512, 800_000, false},
		{"softmax", 4*unit + 512, 500_000, true}, {"mask", unit + 1536, 100_000, true},
		{"context", unit, 800_000, true}, {"proj", unit, 1_000_000, false},
		{"residual1", unit, 200_000, true}, {"norm2", unit, 200_000, true}, {"mean2", 32 << 10, 10_000, true},
		{"up", 4 * unit, 4_000_000, true},
		{"gelu", 4 * unit, 400_000, true}, {"down", unit, 4_000_000, false},
		{"residual2", unit, 200_000, true},
	}
	layers := max(n/(2*len(layer)+1), 1)
	saved := make([][]plan.BufferID, layers)
	x := b.Buffer("embedding", unit, timeline.Activation)
	b.Op("embed", traces.PhaseForward, 100_000, nil, []plan.BufferID{x})
	module := ""
	op := func(name string, phase traces.Phase, nanos int64, reads, writes []plan.BufferID) {
		b.P.Ops[b.Op(name, phase, nanos, reads, writes)].Module = module
	}
	for l := range layers {
		module = fmt.Sprintf("layer%d", l)
		w := b.Persistent("weights", 4<<20, timeline.Parameter)
		residual := x
		for _, t := range layer {
			y := b.Buffer(t.name, t.size, timeline.Activation)
			reads := []plan.BufferID{x, w}
			if t.name == "residual1" || t.name == "residual2" {
				reads = []plan.BufferID{x, residual}
			}
			op(t.name, traces.PhaseForward, t.nanos, reads, []plan.BufferID{y})
			if t.saved {
				saved[l] = append(saved[l], y)
			}
			if x = y; t.name == "residual1" {
				residual = y
			}
		}
	}
	grad := b.Buffer("grad", unit, timeline.Gradient)
	b.Op("loss", traces.PhaseBackward, 100_000, []plan.BufferID{x}, []plan.BufferID{grad})
	for l := layers - 1; l >= 0; l-- {
		module = fmt.Sprintf("layer%d", l)
		left := saved[l]
		for k := len(layer) - 1; k >= 0; k-- {
			next := b.Buffer("grad", layer[max(k-1, 0)].size, timeline.Gradient)
			reads := []plan.BufferID{grad}
			if layer[k].saved {
				reads = append(reads, left[len(left)-1])
				left = left[:len(left)-1]
			}
			op("backward", traces.PhaseBackward, 2*layer[k].nanos, reads, []plan.BufferID{next})
			grad = next
		}
	}
	return b.End()
}

// wide is a net of n ops that each read two of the last few hundred or thousand results, at random.
func wide(n int) *plan.Problem {
	r := rand.New(rand.NewPCG(uint64(n), 5))
	b := plantest.New()
	b.P.Align = 256
	reach := min(n/10, 1000)
	for i := range n {
		phase := traces.PhaseForward
		if i >= n/2 {
			phase = traces.PhaseBackward
		}
		var reads []plan.BufferID
		for range min(i, 2) {
			reads = append(reads, plan.BufferID(max(0, i-1-r.IntN(2*reach))))
		}
		if len(reads) == 2 && reads[0] == reads[1] {
			reads = reads[:1]
		}
		size := int64(math.Exp(math.Log(4<<10) + r.Float64()*math.Log(1e4)))
		b.Buffer("t", size, timeline.Activation)
		b.Op("op", phase, 20_000+r.Int64N(300_000), reads, []plan.BufferID{plan.BufferID(i)})
	}
	return b.End()
}

// problems are those made so far, by shape and size: making them takes as long as planning for them.
var problems = map[string]*plan.Problem{}

func problemOf(shape string, n int) *plan.Problem {
	key := fmt.Sprint(shape, n)
	for _, s := range shapes {
		if s.name == shape && problems[key] == nil {
			problems[key] = s.build(n)
		}
	}
	return problems[key]
}

// halfway is a budget in the middle between what must reside and the peak.
func halfway(p *plan.Problem) int64 { return budgetOf(p, 0.5) }

// BenchmarkPlanning is planning alone, by manager, shape and number of buffers. A manager that has not ended
// within ten minutes is stopped, and fails. The figure to look at is cpu-s/plan, seconds of processor time,
// which another program on the machine does not stretch as it does s/plan:
//
//	GOMAXPROCS=1 go test ./managers -run '^$' -bench Planning -benchtime 1x
func BenchmarkPlanning(b *testing.B) {
	for _, m := range managers.All() {
		name := m.Info().Name
		if slow(name) { // they solve integer programs or ask all others: they take as much time as they get
			continue
		}
		b.Run(name, func(b *testing.B) {
			for _, shape := range shapes {
				for _, n := range []int{1_000, 10_000, 100_000} {
					b.Run(fmt.Sprintf("%s/%d", shape.name, n), func(b *testing.B) {
						benchmarkPlan(b, m, problemOf(shape.name, n))
					})
				}
			}
		})
	}
}

func benchmarkPlan(b *testing.B, m plan.Manager, p *plan.Problem) {
	r := plan.Request{Budget: halfway(p), Evaluator: sim.Simulator{}}
	b.ReportAllocs()
	var used time.Duration
	unavailable := false
	for b.Loop() {
		ctx, stop := context.WithTimeout(context.Background(), 10*time.Minute)
		before := cpuTime()
		_, err := m.Plan(ctx, p, r)
		used += cpuTime() - before
		stop()
		if unavailable = errors.As(err, new(*plan.Unavailable)); unavailable { // no optimizer state
			continue // a benchmark may not leave its loop
		}
		if err != nil { // every shape has its dataflow, and room for every manager
			b.Fatal(err)
		}
	}
	if unavailable {
		return
	}
	b.ReportMetric(b.Elapsed().Seconds()/float64(b.N), "s/plan")
	if used > 0 {
		b.ReportMetric(used.Seconds()/float64(b.N), "cpu-s/plan")
	}
}

// TestEveryManagerPlansTenThousandBuffers is about validity; how long it takes is for BenchmarkPlanning to
// say.
func TestEveryManagerPlansTenThousandBuffers(t *testing.T) {
	if testing.Short() {
		t.Skip("needs a run without -short: it plans for ten thousand buffers with each manager")
	}
	for _, shape := range shapes {
		p := problemOf(shape.name, 10_000)
		for _, m := range managers.All() {
			name := m.Info().Name
			if slow(name) {
				continue
			}
			pl, err := m.Plan(context.Background(), p, plan.Request{Budget: halfway(p), Work: workOf(name),
				Evaluator: sim.Simulator{}})
			if errors.As(err, new(*plan.Unavailable)) || errors.As(err, new(*plan.TooSmall)) {
				continue
			}
			if err != nil {
				t.Errorf("%s, %d buffers: %s: %v", shape.name, len(p.Buffers), name, err)
				continue
			}
			if err := plan.Validate(p, pl); err != nil {
				t.Errorf("%s, %d buffers: %v", shape.name, len(p.Buffers), err)
			}
			live, _ := pl.PeakLive()
			if pl.Policy == nil && pl.Footprint < live {
				t.Errorf("%s: %s claims %d bytes and has %d alive", shape.name, name, pl.Footprint, live)
			}
		}
	}
}

// most runs a function and returns the most bytes that the heap held meanwhile beyond what it held before, by
// a sample every millisecond and to a fifth.
func most(run func()) int64 {
	defer debug.SetGCPercent(debug.SetGCPercent(20))
	held := func() int64 {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	runtime.GC()
	before, highest := held(), int64(0)
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for tick := time.NewTicker(time.Millisecond); ; {
			select {
			case <-end:
				tick.Stop()
				return
			case <-tick.C:
				highest = max(highest, held())
			}
		}
	}()
	run()
	close(end)
	<-ended
	return max(highest, held()) - before
}

// TestMemoryGrowsWithTheBuffers: eight times the buffers take less than 24 times the memory while they are
// planned for. Whatever has a row for each pair of buffers would take 64 times as much.
func TestMemoryGrowsWithTheBuffers(t *testing.T) {
	if testing.Short() {
		t.Skip("needs a run without -short: it plans for four thousand buffers with each manager")
	}
	few, many := problemOf("gpt", 500), problemOf("gpt", 4_000)
	for _, m := range managers.All() {
		name := m.Info().Name
		if slow(name) {
			continue
		}
		planned := func(p *plan.Problem) int64 {
			return most(func() {
				_, err := m.Plan(context.Background(), p,
					plan.Request{Budget: halfway(p), Work: workOf(name), Evaluator: sim.Simulator{}})
				if err != nil && !errors.As(err, new(*plan.Unavailable)) {
					t.Errorf("%s: %v", name, err)
				}
			})
		}
		a, b := planned(few), planned(many)
		if t.Logf("%s: %.1f and %.1f MiB", name, float64(a)/(1<<20), float64(b)/(1<<20)); b >= 24*max(a, 1<<18) {
			t.Errorf("%s holds %d bytes for 500 buffers and %d for 4,000", name, a, b)
		}
	}
}
