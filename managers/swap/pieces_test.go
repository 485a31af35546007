package swap

import (
	"context"
	"math"
	"math/rand/v2"
	"testing"
)

func TestTheHeapGivesTheGreatestAndThenTheLowestNumber(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	h := newHeap(0)
	for i := range int32(500) {
		h.push(i, float64(r.IntN(40)))
	}
	lastID, last := int32(-1), math.Inf(1)
	for h.len() > 0 {
		id, score := h.pop()
		if score > last || score == last && id < lastID {
			t.Fatalf("%d of %g behind %d of %g", id, score, lastID, last)
		}
		lastID, last = id, score
	}
}

func TestTheProcessPassesThroughItsPoints(t *testing.T) {
	x := []weights{{0, 0, 0, 0}, {1, 0, 0, 0}, {0, 1, 0, -1}, {-1, -1, 0.5, 0}, {0.2, 0.9, -0.4, 0.1}}
	y := []float64{3, -2, 7, 0, 5}
	g := fit(x, y)
	row := make([]float64, len(x))
	for i := range x {
		if got := g.mean + g.scale*g.bound(x[i], 0, row); math.Abs(got-y[i]) > 1e-3 {
			t.Errorf("at point %d the process says %g, the value is %g", i, got, y[i])
		}
	}
	if far := g.bound(weights{-1, 1, 1, 1}, 1, row) - g.bound(weights{-1, 1, 1, 1}, 0, row); far < 0.1 ||
		far > 1.1 {
		t.Errorf("far from all points the deviation is %g", far)
	}
}

func TestBayesianOptimisationFindsTheTopOfAHill(t *testing.T) {
	top := weights{0.3, -0.5, 0.7, 0.1}
	hill := func(w weights) float64 {
		var d float64
		for i := range w {
			d += (w[i] - top[i]) * (w[i] - top[i])
		}
		return math.Exp(-d)
	}
	first := []weights{unit(DOA), unit(AOA), unit(WDOA), unit(SWDOA)}
	search := func(n int64, seed uint64) (best float64) {
		maximise(context.Background(), first, n, 1, seed, func(w weights) (float64, bool) {
			best = max(best, hill(w))
			return hill(w), false
		})
		return best
	}
	before, after := search(0, 1), search(30, 1)
	if after < 0.9 || after <= before {
		t.Errorf("30 looks come to %.3f of 1, the first four to %.3f", after, before)
	}
	if again := search(30, 1); again != after {
		t.Errorf("the same seed comes to %g and %g", after, again)
	}
}

// square is a recording of a network of four layers with one block a layer, written forward and read
// backward.
func square() *Recording {
	r := &Recording{Period: 16}
	var now, live int64
	for range 3 {
		op := func(k OpKind, block int) {
			now += 3e5
			switch k {
			case OpMalloc:
				live += 10 << 20
			case OpFree:
				live -= 10 << 20
			}
			r.Ops, r.Load = append(r.Ops, BlockOp{Kind: k, Addr: uint64(0x100 * (block + 1)), Size: 10 << 20,
				Time: now}), append(r.Load, live)
		}
		for b := range 4 {
			op(OpMalloc, b)
			op(OpMutable, b)
		}
		for b := 3; b >= 0; b-- {
			op(OpRead, b)
			op(OpFree, b)
		}
	}
	return r
}

func TestCandidatesStraddleThePeakAndFollowAnAccess(t *testing.T) {
	r := square()
	peak, at := r.Peak()
	blocks, bytes, floor, err := leaving(r, AsDescribed)
	if err != nil || peak != 40<<20 || at != 6 || blocks != 3 || bytes != 30<<20 || floor != 10<<20 {
		t.Errorf("peak %d at %d, %d candidates of %d bytes, floor %d, %v", peak, at, blocks, bytes, floor,
			err)
	}
}

func TestALimitAboveThePeakCostsNothingAndALowerOneCosts(t *testing.T) {
	r := square()
	for s := DOA; s <= SWDOA; s++ {
		got, err := Curve(t.Context(), r, s, []int64{40 << 20, 15 << 20}, AsDescribed)
		if err != nil || got[0] != 0 || got[1] <= 0 {
			t.Errorf("%s: %v, %v", s, got, err)
		}
	}
}

func TestARecordingThatIsNoThreeIterationsIsRefused(t *testing.T) {
	r := square()
	r.Load = r.Load[1:]
	if _, err := Curve(t.Context(), r, DOA, []int64{1}, AsDescribed); err == nil {
		t.Error("a load curve that is too short was taken")
	}
	r = square()
	r.Ops[5].Time = 0
	if _, err := Curve(t.Context(), r, DOA, []int64{1}, AsDescribed); err == nil {
		t.Error("a clock that goes back was taken")
	}
}
