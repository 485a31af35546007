package autopsy

import (
	"context"
	"math/rand"
	"testing"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/timelinetest"
)

func TestWithoutCutsThePeakStaysAndACutOfOneBlockNeverTakesMoreThanTheBlock(t *testing.T) {
	d := timelinetest.Built(t, timelinetest.Unmarked(20_000))
	work := make([]int64, d.Len()+2)
	ctx := context.Background()
	if p, err := peakWithout(ctx, d, nil, work); err != nil || p != d.Totals.PeakAllocated {
		t.Errorf("%d, %v, peak %d", p, err, d.Totals.PeakAllocated)
	}
	rng := rand.New(rand.NewSource(5))
	for range 100 {
		a := timeline.AllocID(rng.Intn(d.Allocs.Len()))
		cuts := []cut{life(d, a, d.Allocs.Size[a])}
		p, err := peakWithout(ctx, d, cuts, work)
		// By the definition: the maximum over all moments of what is left.
		want := int64(0)
		for m := timeline.Start; int(m) < d.Len(); m++ {
			want = max(want, d.Allocated.At(m)-bytesAt(cuts, m))
		}
		if err != nil || p != want || d.Totals.PeakAllocated-p > d.Allocs.Size[a] {
			t.Fatalf("allocation %d: %d, want %d, %v", a, p, want, err)
		}
	}
}
