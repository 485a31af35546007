package managers_test

import (
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/gmemtop/gmemtop/managers/joint"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/managers/plan/plantest"
	"github.com/gmemtop/gmemtop/replay/sim"
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/traces"
)

var (
	rounds = flag.Int("rounds", 8, "how many unseen problems the laws are tried on")
	first  = flag.Uint64("first", 0, "the seed of the first of them")
)

// TestLawsHoldOnUnseenProblems: on random trainings of many shapes, at random budgets, every plan is valid
// and measures what it says; none is faster than joint's bound; no other manager is faster than joint or
// meets a budget that joint misses; and joint is never slower with more memory.
//
//	go test ./managers -run Unseen -v -args -rounds 1000 -first 100
func TestLawsHoldOnUnseenProblems(t *testing.T) {
	t.Parallel()
	began, moved := time.Now(), 0
	for k := range uint64(*rounds) {
		seed := *first + k
		p := unseen(seed)
		t.Run(fmt.Sprint(seed), func(t *testing.T) { moved += lawful(t, p, seed) })
		if (k+1)%20 == 0 {
			t.Logf("%d rounds, %d plans that move something, %s", k+1, moved,
				time.Since(began).Round(time.Second))
		}
	}
	if moved < *rounds {
		t.Errorf("%d plans move or drop anything: the laws were hardly tried", moved)
	}
}

// lawful tries the laws on one problem, and returns how many plans move or drop something.
func lawful(t *testing.T, p *plan.Problem, seed uint64) (moved int) {
	const work = 200_000
	r := rand.New(rand.NewPCG(seed, 5))
	peak, _ := p.PeakLive()
	least := plan.LeastResident(p)
	l := newLaw()
	checked := func(m plan.Manager, q plan.Request) (pl *plan.Plan, at plan.Measurement, ok bool) {
		t.Helper()
		pl, err := m.Plan(t.Context(), p, q)
		if err != nil || pl.Policy != nil {
			return nil, at, false
		}
		if err := plan.Validate(p, pl); err != nil {
			t.Errorf("within %d: %s: %v", q.Budget, m.Info().Name, err)
			return nil, at, false
		}
		if at, err = sim.Run(t.Context(), p, pl, sim.Options{}); err != nil {
			t.Errorf("within %d: %s: %v", q.Budget, m.Info().Name, err)
			return nil, at, false
		}
		live, _ := pl.PeakLive()
		if at.Footprint != pl.Footprint || at.PeakLive != live {
			t.Errorf("within %d: %s plans %d bytes, %d alive, and %d and %d are measured", q.Budget,
				m.Info().Name, pl.Footprint, live, at.Footprint, at.PeakLive)
		}
		if len(pl.Absences) > 0 || pl.Parks {
			moved++
		}
		return pl, at, at.Footprint <= q.Budget
	}
	var known []*plan.Plan
	last, alone := int64(plantest.Never), int64(plantest.Never)
	share := 0.0
	for range 3 { // budgets that grow
		share += (1 - share) * r.Float64() * r.Float64()
		q := plan.Request{Budget: least + int64(share*float64(peak-least)), Seed: 1, Work: work,
			Evaluator: sim.Simulator{}, Known: known}
		pl, at, fits := checked(l.joint, q)
		mine := int64(plantest.Never)
		if fits {
			mine, known = at.StepTime, append(known, pl)
			if pl.StepBound > mine {
				t.Errorf("within %d: joint takes %d ns, below its bound %d", q.Budget, mine, pl.StepBound)
			}
		}
		if mine > last {
			t.Errorf("within %d: joint takes %d ns, and %d within less", q.Budget, mine, last)
		}
		last = mine
		q.Known = nil
		if _, x, ok := checked(joint.Joint{}, q); ok {
			if x.StepTime > alone {
				t.Errorf("within %d: the ladder takes %d ns, and %d within less", q.Budget, x.StepTime, alone)
			}
			alone = x.StepTime
		}
		q.Work = 0
		for _, m := range l.rivals {
			other, x, ok := checked(m, q)
			if !ok {
				continue
			}
			if x.StepTime < mine {
				t.Errorf("within %d: joint takes %d ns, %s %d", q.Budget, mine, m.Info().Name, x.StepTime)
			}
			if fits && other.Parks == pl.Parks && x.StepTime < pl.StepBound {
				t.Errorf("within %d: %s takes %d ns, below the bound %d", q.Budget, m.Info().Name,
					x.StepTime, pl.StepBound)
			}
		}
	}
	return moved
}

// unseen is a training of a shape that the seed picks: layers in a chain, with shortcuts, with branches that
// join, with one value that all read or with many tiny ones; changes in place, shared weights, optimizer
// state; any link, no copy engines, or little pinned memory.
func unseen(seed uint64) *plan.Problem {
	r := rand.New(rand.NewPCG(seed, 0x5851f42d4c957f2d))
	b := plantest.New()
	u := &unseenNet{r: r, b: b, scale: math.Exp(math.Log(64) + r.Float64()*math.Log(1<<20)),
		spread: 1 + r.Float64()*5}
	b.P.Align = []int64{1, 256, 512}[r.IntN(3)]
	h := &b.P.Hardware
	h.D2H.BytesPerSecond = u.scale * math.Exp(r.Float64()*10) * 100
	h.H2D.BytesPerSecond = h.D2H.BytesPerSecond * (0.5 + r.Float64())
	if r.IntN(2) == 0 {
		h.D2H.Latency, h.H2D.Latency = r.Int64N(60_000), r.Int64N(60_000)
	}
	if r.IntN(3) == 0 {
		h.Together = 0.5 + r.Float64()/2
	}
	if r.IntN(3) == 0 {
		h.LaunchGap = r.Int64N(20_000)
	}
	if r.IntN(4) == 0 {
		h.AgainTime, h.SaveTime, h.NoteTime = r.Int64N(30_000), r.Int64N(5000), r.Int64N(5000)
	}
	h.NoEngines = r.IntN(6) == 0
	u.train(2 + r.IntN(12))
	p := b.End()
	if r.IntN(5) == 0 {
		p.Kind = traces.Accesses
	}
	if r.IntN(5) == 0 {
		peak, _ := p.PeakLive()
		p.Hardware.PinnedBytes = 1 + r.Int64N(max(peak/2, 1))
	}
	return p
}

// unseenNet makes the ops of a training.
type unseenNet struct {
	r             *rand.Rand
	b             *plantest.Builder
	scale, spread float64
	saved         [][]plan.BufferID // by forward op, what its backward op reads
	weights       []plan.BufferID   // by forward op; NoBuffer for none
}

// size is a random one around the scale.
func (u *unseenNet) size() int64 {
	return 1 + int64(u.scale*math.Exp((u.r.Float64()-0.5)*u.spread))
}

// time is that of an op, from a microsecond to milliseconds.
func (u *unseenNet) time() int64 { return 1000 + int64(math.Exp(u.r.Float64()*8)*1000) }

// forward adds an op that reads some values and writes one, and notes what its backward op will read.
func (u *unseenNet) forward(reads ...plan.BufferID) plan.BufferID {
	b, r := u.b, u.r
	y := b.Buffer(fmt.Sprintf("t%d", len(b.P.Buffers)), u.size(), timeline.Activation)
	w := plan.NoBuffer
	in := reads
	if r.IntN(3) > 0 {
		if w = b.Persistent("weight", u.size(), timeline.Parameter); len(u.weights) > 0 && r.IntN(4) == 0 {
			w = u.weights[r.IntN(len(u.weights))] // shared with another layer
		}
	}
	if w != plan.NoBuffer {
		in = append(append([]plan.BufferID(nil), reads...), w)
	}
	writes := []plan.BufferID{y}
	if r.IntN(5) == 0 {
		mask := b.Buffer("mask", 1+u.size()/16, timeline.Activation)
		writes = append(writes, mask)
	}
	id := b.Op("forward", traces.PhaseForward, u.time(), in, writes)
	b.P.Ops[id].Rerunnable = r.IntN(8) > 0
	if r.IntN(6) == 0 { // a workspace, with an algorithm that needs none
		ws := b.Buffer("workspace", u.size()*2, timeline.Temporary)
		b.P.Ops[id].Workspace = ws
		b.P.Buffers[ws].Start, b.P.Buffers[ws].End = id, id+1
		d := b.P.Ops[id].Duration
		b.P.Ops[id].Variants = []plan.Variant{{Name: "fast", Duration: d, Workspace: b.P.Buffers[ws].Size},
			{Name: "small", Duration: d + d/2}}
	}
	saved := append([]plan.BufferID(nil), writes[1:]...)
	if r.IntN(4) > 0 {
		saved = append(saved, reads...)
	}
	if r.IntN(3) == 0 {
		saved = append(saved, y)
	}
	u.saved, u.weights = append(u.saved, saved), append(u.weights, w)
	if r.IntN(5) == 0 { // an activation in place, whose own backward op reads its result
		act := b.Op("in place", traces.PhaseForward, u.time()/8, nil, nil)
		b.P.Ops[act].Rerunnable = r.IntN(3) > 0
		b.Mutate(y)
		u.saved, u.weights = append(u.saved, []plan.BufferID{y}), append(u.weights, plan.NoBuffer)
	}
	return y
}

// add adds one value to another in place. The other has been read before, with its old contents.
func (u *unseenNet) add(to, x plan.BufferID) plan.BufferID {
	id := u.b.Op("add in place", traces.PhaseForward, u.time()/8, []plan.BufferID{x}, nil)
	u.b.P.Ops[id].Rerunnable = u.r.IntN(4) > 0
	u.b.Mutate(to)
	u.saved, u.weights = append(u.saved, nil), append(u.weights, plan.NoBuffer)
	return to
}

// train adds a whole step.
func (u *unseenNet) train(layers int) {
	b, r := u.b, u.r
	x := b.Buffer("input", u.size(), timeline.Activation)
	input := b.Op("load", traces.PhaseForward, u.time(), nil, []plan.BufferID{x})
	b.P.Ops[input].Rerunnable = false
	shared := x // all layers may read it
	if r.IntN(4) == 0 {
		u.scale *= 30
		shared = u.forward(x)
		u.scale /= 30
	}
	shape := r.IntN(6)
	for range layers {
		switch shape {
		case 0: // a chain
			x = u.forward(x)
		case 1: // branches that join
			x = u.forward(u.forward(x), u.forward(u.forward(x)))
		case 2: // one value that all read
			if y := u.forward(x, shared); r.IntN(2) == 0 {
				x = y
			}
		case 3: // shortcuts
			x = u.forward(u.forward(u.forward(x)), x)
		case 4: // the same in place
			if y := u.forward(u.forward(x)); r.IntN(3) > 0 {
				x = u.add(x, y)
			} else {
				x = u.add(y, x)
			}
		default: // many tiny values beside each one
			u.scale /= 200
			tiny := x
			for range 6 {
				tiny = u.forward(tiny)
			}
			u.scale *= 200
			x = u.forward(x, tiny)
		}
	}
	grad := b.Buffer("grad", u.size(), timeline.Gradient)
	b.Op("loss", traces.PhaseBackward, u.time(), []plan.BufferID{x}, []plan.BufferID{grad})
	grads := map[plan.BufferID]plan.BufferID{}
	for k := len(u.saved) - 1; k >= 0; k-- {
		reads := []plan.BufferID{grad}
		for _, s := range u.saved[k] {
			if s != grad && !slices.Contains(reads, s) {
				reads = append(reads, s)
			}
		}
		next := b.Buffer("grad", u.size(), timeline.Gradient)
		writes := []plan.BufferID{next}
		w := u.weights[k]
		sum, again := grads[w]
		if w >= 0 {
			reads = append(reads, w)
			if !again {
				sum = b.Buffer("weight.grad", b.P.Buffers[w].Size, timeline.Gradient)
				writes, grads[w] = append(writes, sum), sum
			}
		}
		id := b.Op("backward", traces.PhaseBackward, 2*u.time(), reads, writes)
		b.P.Ops[id].Rerunnable = r.IntN(4) == 0
		if again {
			b.Mutate(sum)
		}
		grad = next
	}
	adam := r.IntN(2) == 0
	for _, w := range u.weights {
		sum, ok := grads[w]
		if !ok {
			continue
		}
		delete(grads, w)
		b.Op("update", traces.PhaseOptimizer, u.time()/4, []plan.BufferID{sum}, nil)
		b.Mutate(w)
		if adam {
			b.Mutate(b.Persistent("exp_avg", b.P.Buffers[w].Size, timeline.OptimizerState))
		}
	}
}
