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
	all := timeline.Moment(d.Len())
	if p, err := peakWithout(ctx, d, nil, all, work); err != nil || p != d.Totals.PeakAllocated {
		t.Errorf("%d, %v, peak %d", p, err, d.Totals.PeakAllocated)
	}
	rng := rand.New(rand.NewSource(5))
	for range 100 {
		a := timeline.AllocID(rng.Intn(d.Allocs.Len()))
		cuts := []Change{life(d, a, d.Allocs.Size[a])}
		p, err := peakWithout(ctx, d, cuts, all, work)
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

func TestALeverWithASavingSaysWhichAllocationsItChanges(t *testing.T) {
	d := timelinetest.Built(t, timelinetest.Sample(t))
	a, err := Of(context.Background(), d, timeline.IEC)
	if err != nil {
		t.Fatal(err)
	}
	changed := 0
	for _, l := range a.Levers {
		for _, c := range l.Effect.Changes {
			if c.From < d.Allocs.Start[c.Alloc] || c.To > timeline.Moment(d.Len()) || c.From >= c.To ||
				c.Bytes <= 0 || c.Bytes > d.Allocs.Rounded[c.Alloc] {
				t.Fatalf("%s: %+v of an allocation of %d bytes", l.Name, c, d.Allocs.Rounded[c.Alloc])
			}
		}
		if len(l.Effect.Changes) > 0 {
			changed++
			peak, err := peakWithout(context.Background(), d, l.Effect.Changes, timeline.Moment(d.Len()),
				make([]int64, d.Len()+2))
			if err != nil || d.Totals.PeakAllocated-peak != l.Saves.Or(-1) {
				t.Errorf("%s saves %v; its changes save %d", l.Name, l.Saves, d.Totals.PeakAllocated-peak)
			}
		}
	}
	if changed == 0 {
		t.Error("no lever changes an allocation")
	}
}
