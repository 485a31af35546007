package pool_test

import (
	"bytes"
	"context"
	"errors"
	"math/bits"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/gmemtop/gmemtop/managers/networks/networkstest"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/managers/plan/plantest"
	"github.com/gmemtop/gmemtop/managers/pool"
	"github.com/gmemtop/gmemtop/replay/sim"
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/traces"
)

// ordered plans with the manager and checks the plan as everybody does; q is the problem that it speaks of.
func ordered(t *testing.T, p *plan.Problem) (pl *plan.Plan, q *plan.Problem) {
	t.Helper()
	pl, err := pool.Order().Plan(t.Context(), p, plan.Request{Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	if err := plan.Validate(p, pl); err != nil {
		t.Fatal(err)
	}
	m, err := sim.Run(t.Context(), p, pl, sim.Options{})
	if err != nil {
		t.Fatal(err)
	}
	live, _ := pl.PeakLive()
	if m.Footprint != pl.Footprint || m.PeakLive != live || live < pl.LowerBound {
		t.Errorf("the plan says %d bytes, %d alive, at least %d; measured are %d and %d", pl.Footprint, live,
			pl.LowerBound, m.Footprint, m.PeakLive)
	}
	if q, err = pl.Of(p); err != nil {
		t.Fatal(err)
	}
	return pl, q
}

// loose is a random problem of few ops that can run in many orders: values of different sizes, read once or
// twice, some changed in place.
func loose(seed uint64) *plan.Problem {
	r := rand.New(rand.NewPCG(seed, 11))
	b := plantest.New()
	var values []plan.BufferID
	for i := range 7 + r.IntN(7) {
		var reads []plan.BufferID
		for range r.IntN(3) {
			if len(values) > 0 {
				if v := values[r.IntN(len(values))]; !slices.Contains(reads, v) {
					reads = append(reads, v)
				}
			}
		}
		v := b.Buffer("v", int64(1+r.IntN(9))<<20, timeline.Activation)
		o := b.Op("op", traces.PhaseForward, 1000, reads, []plan.BufferID{v})
		b.P.Ops[o].Rerunnable = r.IntN(6) > 0
		if i > 2 && r.IntN(5) == 0 {
			if w := values[r.IntN(len(values))]; !slices.Contains(reads, w) {
				b.Mutate(w)
			}
		}
		values = append(values, v)
	}
	return b.End()
}

// lowestPeak is the lowest peak of all orders of a problem's ops, by dynamic programming over the sets of ops
// that have run. It derives from accesses, pair by pair, what must stay in order.
func lowestPeak(p *plan.Problem) int64 {
	n := len(p.Ops)
	conflict := func(i, j int) bool {
		for _, a := range p.AccessesOf(plan.OpID(i)) {
			for _, b := range p.AccessesOf(plan.OpID(j)) {
				if a.Buffer == b.Buffer && (a.Mode.Writes() || b.Mode.Writes()) {
					return true
				}
			}
		}
		return !p.Ops[i].Rerunnable && !p.Ops[j].Rerunnable
	}
	earlier := make([]uint32, n)
	for j := range n {
		for i := range j {
			if conflict(i, j) {
				earlier[j] |= 1 << i
			}
		}
	}
	uses := make([]uint32, len(p.Buffers))
	for b := range uses {
		for _, x := range p.TouchesOf(plan.BufferID(b)) {
			uses[b] |= 1 << x.Op
		}
	}
	best := make([]int64, 1<<n)
	for set := uint32(1); set < 1<<n; set++ {
		best[set] = 1 << 60
		for left := set; left != 0; left &= left - 1 {
			o := bits.TrailingZeros32(left)
			done := set &^ (1 << o)
			if earlier[o]&^done != 0 {
				continue
			}
			var load int64
			for b, u := range uses {
				if u&set != 0 && u&^done != 0 {
					load += p.Rounded(plan.BufferID(b))
				}
			}
			best[set] = min(best[set], max(best[done], load))
		}
	}
	return best[1<<n-1]
}

// TestOrderIsMostlyTheBestOfAll holds the search against all orders of small problems.
func TestOrderIsMostlyTheBestOfAll(t *testing.T) {
	const problems = 60
	optimal, lower := 0, 0
	for seed := range uint64(problems) {
		p := loose(seed)
		before, _ := p.PeakLive()
		_, q := ordered(t, p)
		got, _ := q.PeakLive()
		want := lowestPeak(p)
		if got < want || got > before {
			t.Errorf("seed %d: a peak of %d bytes, %d as recorded, and none is below %d", seed, got, before,
				want)
		}
		if got == want {
			optimal++
		}
		if want < before {
			lower++
		}
	}
	t.Logf("the lowest peak in %d of %d; another order than the recorded one is lower in %d", optimal,
		problems, lower)
	if optimal*100 < problems*95 || lower < problems/3 {
		t.Error("the search is worse than it was, or was hardly tried")
	}
}

// TestOrderUpdatesAWeightBehindItsGradient: an optimizer that goes through its weights after the whole
// backward pass holds all gradients until then.
func TestOrderUpdatesAWeightBehindItsGradient(t *testing.T) {
	p := networkstest.Problem(t, "vgg16", 2, "v100-pcie-16gb")
	before, _ := p.PeakLive()
	pl, q := ordered(t, p)
	after, _ := q.PeakLive()
	if after > before*83/100 { // gradients are a fifth of it
		t.Errorf("the peak is %d bytes, %d as recorded", after, before)
	}
	if pl.Executor != plan.Reordering || pl.Sequence == nil {
		t.Errorf("a plan for %s", pl.Executor)
	}
	var file bytes.Buffer
	if err := pl.WriteJSON(&file, p); err != nil {
		t.Fatal(err)
	}
	again, err := plan.ReadJSON(&file, p)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(again.Sequence, pl.Sequence) || again.Executor != pl.Executor {
		t.Errorf("read back it is a plan for %s with %d ops in another order", again.Executor,
			len(again.Sequence))
	}
	pl.Executor = plan.Ideal
	if err := plan.Validate(p, pl); !errors.Is(err, plan.ErrInvalid) {
		t.Errorf("an executor that keeps the order runs another one: %v", err)
	}
}

// TestRandomProblemsRunInValidOrders is for what the small problems do not have: several streams, workspaces,
// variants, what lives from one iteration into the next.
func TestRandomProblemsRunInValidOrders(t *testing.T) {
	reordered := 0
	for seed := range uint64(40) {
		p := plantest.Random(seed, 10+int(seed)*2)
		before, _ := p.PeakLive()
		pl, q := ordered(t, p)
		if after, _ := q.PeakLive(); after > before {
			t.Errorf("seed %d: the peak is %d bytes, %d as recorded", seed, after, before)
		}
		if pl.Sequence != nil {
			reordered++
		}
		last := plan.OpID(-1) // of those whose effect their accesses do not show
		for _, o := range pl.Sequence {
			if op := &p.Ops[o]; op.Phase == traces.PhaseForward && !op.Rerunnable {
				if o < last {
					t.Errorf("seed %d: op %d runs behind op %d, and neither may run twice", seed, o, last)
				}
				last = o
			}
		}
	}
	if reordered < 20 {
		t.Errorf("only %d of 40 have another order", reordered)
	}
}

func TestOrderIsNotForATrainingThatRuns(t *testing.T) {
	p := plantest.Chain(6, 1<<20, 1000)
	p.EagerOnly = true
	_, err := pool.Order().Plan(context.Background(), p, plan.Request{})
	if !errors.As(err, new(*plan.Unavailable)) {
		t.Errorf("%v", err)
	}
}
