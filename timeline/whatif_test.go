package timeline_test

import (
	"context"
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/timelinetest"
	"math/rand"
	"testing"
)

func TestWithoutCutsThePeakStaysAndACutOfOneBlockNeverTakesMoreThanTheBlock(t *testing.T) {
	d := timelinetest.Built(t, timelinetest.Unmarked(20_000))
	work := make([]int64, d.Len()+2)
	ctx := context.Background()
	if p, err := d.PeakWithout(ctx, nil, work); err != nil || p != d.Totals.PeakAllocated {
		t.Errorf("%d, %v, peak %d", p, err, d.Totals.PeakAllocated)
	}
	rng := rand.New(rand.NewSource(5))
	for range 100 {
		a := timeline.AllocID(rng.Intn(d.Allocs.Len()))
		cuts := []timeline.Cut{d.Life(a, d.Allocs.Size[a])}
		p, err := d.PeakWithout(ctx, cuts, work)
		// By the definition: the maximum over all moments of what is left.
		want := int64(0)
		for m := timeline.Start; int(m) < d.Len(); m++ {
			want = max(want, d.Allocated.At(m)-timeline.BytesAt(cuts, m))
		}
		if err != nil || p != want || d.Totals.PeakAllocated-p > d.Allocs.Size[a] {
			t.Fatalf("allocation %d: %d, want %d, %v", a, p, want, err)
		}
	}
}
