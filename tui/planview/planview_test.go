package planview

import (
	"context"
	"slices"
	"testing"

	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/managers/plan/plantest"
	"github.com/gmemtop/gmemtop/replay"
	"github.com/gmemtop/gmemtop/timeline"
)

// scenes are the plans of random problems with random absences, each instance at its own address.
func scenes(t *testing.T, each func(seed uint64, sc *scene)) {
	t.Helper()
	for seed := range uint64(40) {
		p := plantest.Random(seed, 60)
		pl, err := plan.Assemble(p, plantest.RandomDecisions(p, seed, 0.4))
		if err != nil {
			t.Fatal(err)
		}
		offsets := make([]int64, len(pl.Instances))
		resident := map[plan.BufferID]plan.InstanceID{}
		for _, i := range pl.Resident {
			resident[pl.Instances[i].Buffer] = i
		}
		var top int64
		for i := range pl.Instances { // what stays ends the iteration where it began it
			x := &pl.Instances[i]
			if first, ok := resident[x.Buffer]; ok && int(first) < i && int(x.To) == len(pl.Steps) {
				offsets[i] = offsets[first]
				continue
			}
			offsets[i] = top
			top += x.Size
		}
		pl.Place(offsets)
		pl.Order(p)
		m, err := replay.Simulated{Charts: true}.Run(context.Background(), p, pl, plan.RunOptions{})
		if err != nil {
			t.Fatal(err)
		}
		sc, err := newScene(context.Background(), p,
			Plan{Name: "test", Result: replay.Result{Plan: pl, Measurement: m}})
		if err != nil {
			t.Fatal(err)
		}
		each(seed, sc)
	}
}

func TestThePeakIsVisibleAtEveryWidth(t *testing.T) {
	scenes(t, func(seed uint64, sc *scene) {
		var peak int64
		for _, u := range sc.usage {
			peak = max(peak, u.Bytes)
		}
		for _, w := range []int{1, 3, 80, 300} {
			r, err := sc.raster(context.Background(), key{0, sc.span + 1, sc.top, w, 8})
			if err != nil {
				t.Fatal(err)
			}
			if got := slices.Max(r.held); got != peak {
				t.Errorf("seed %d: in %d columns the maximum is %d of %d", seed, w, got, peak)
			}
		}
	})
}

func TestEveryStallAndCopyIsVisibleHoweverShort(t *testing.T) {
	scenes(t, func(seed uint64, sc *scene) {
		r, err := sc.raster(context.Background(), key{0, sc.span, sc.top, 40, 4})
		if err != nil {
			t.Fatal(err)
		}
		for name, c := range map[string]struct {
			list []stretch
			of   func(l lane) uint8
		}{
			"stall": {sc.stalls, func(l lane) uint8 {
				return l.stall
			}}, "out": {sc.out, func(l lane) uint8 {
				return l.out
			}}, "in": {sc.in, func(l lane) uint8 { return l.in }},
		} {
			for _, x := range c.list {
				if col := int(r.column(x.from)); x.to > x.from && col < r.w && c.of(r.lanes[col]) == 0 {
					t.Errorf("seed %d: the %s at %d is not in column %d", seed, name, x.from, col)
				}
			}
		}
	})
}

func TestAPointOnTheMapFindsItsBox(t *testing.T) {
	scenes(t, func(seed uint64, sc *scene) {
		k := key{0, sc.span, sc.top, 60, 20}
		r, err := sc.raster(context.Background(), k)
		if err != nil {
			t.Fatal(err)
		}
		for i, point := range r.points {
			if point < 0 {
				continue
			}
			x, row := i%k.w, i/k.w
			b := sc.boxes[point]
			from, to := k.from+int64(float64(x)/60*float64(sc.span)),
				k.from+int64(float64(x+1)/60*float64(sc.span))+1
			high, low := float64(40-row)/40*float64(k.top), float64(39-row)/40*float64(k.top)
			if b.from > to || b.to < from || float64(b.offset) > high+1 || float64(b.offset+b.size) < low-1 {
				t.Fatalf("seed %d: the point at column %d, row %d finds a box that is elsewhere",
					seed, x, row)
			}
		}
	})
}

func TestNoBufferIsListedTwiceAndHeldBytesAddUp(t *testing.T) {
	scenes(t, func(seed uint64, sc *scene) {
		for k := range int64(25) {
			at := sc.span * k / 25
			list, away, onHost := sc.statesAt(at)
			seen := map[plan.BufferID]bool{}
			var gone, held int64
			for _, x := range list {
				if seen[x.buffer] {
					t.Fatalf("seed %d at %d: %s is listed twice", seed, at, sc.bufferName(x.buffer))
				}
				seen[x.buffer] = true
				if x.away && x.moving == still {
					gone += x.size
				} else {
					held += x.size
				}
			}
			if gone != away || onHost > away {
				t.Errorf("seed %d at %d: the listed buffers add up to %d bytes, the "+
					"total is %d, %d on the host",
					seed, at, gone, away, onHost)
			}
		}
	})
}

func TestTheStackIsAsHighAsTheHeldBytes(t *testing.T) {
	scenes(t, func(seed uint64, sc *scene) {
		sc.placed = false
		sc.sum()
		k := key{0, sc.span + 1, sc.top, 50, 50}
		r, err := sc.raster(context.Background(), k)
		if err != nil {
			t.Fatal(err)
		}
		for x := range k.w {
			n := 0
			for row := range 2 * k.h {
				point := r.points[row*k.w+x]
				if cat, ok := category(point); ok {
					if cat >= timeline.NumCategories {
						t.Fatalf("category %d", cat)
					}
					n++
				}
			}
			if want := float64(r.held[x]) / float64(k.top) * float64(2*k.h); float64(n) < want-2 ||
				float64(n) > want+2 {
				t.Errorf("seed %d: column %d is %d rows high, want %.1f", seed, x, n, want)
			}
		}
	})
}

func TestLayingOutStopsWhenItIsCancelled(t *testing.T) {
	p := plantest.Chain(40, 1<<20, 1e6)
	pl, err := plan.Assemble(p, plan.Decisions{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := newScene(ctx, p, Plan{Result: replay.Result{Plan: pl}}); err == nil {
		t.Error("it goes on")
	}
}
