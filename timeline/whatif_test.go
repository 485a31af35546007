package timeline

import (
	"context"
	"math/rand"
	"testing"
)

func TestWithoutCutsThePeakStaysAndACutOfOneBlockNeverTakesMoreThanTheBlock(t *testing.T) {
	d := builtDevice(t, unmarkedTrace(20_000))
	work := make([]int64, d.Len()+2)
	ctx := context.Background()
	if p, err := d.peakWithout(ctx, nil, work); err != nil || p != d.Totals.PeakAllocated {
		t.Errorf("%d, %v, peak %d", p, err, d.Totals.PeakAllocated)
	}
	rng := rand.New(rand.NewSource(5))
	for range 100 {
		a := AllocID(rng.Intn(d.Allocs.Len()))
		cuts := []cut{d.life(a, d.Allocs.Size[a])}
		p, err := d.peakWithout(ctx, cuts, work)
		// By the definition: the maximum over all moments of what is left.
		want := int64(0)
		for m := Start; int(m) < d.Len(); m++ {
			want = max(want, d.Allocated.At(m)-bytesAt(cuts, m))
		}
		if err != nil || p != want || d.Totals.PeakAllocated-p > d.Allocs.Size[a] {
			t.Fatalf("allocation %d: %d, want %d, %v", a, p, want, err)
		}
	}
}
