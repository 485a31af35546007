package timeline

import (
	"context"
	"errors"
	"math/rand"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/traces/torchsnapshot"
)

// snapshotDevice reads a snapshot of the shared folder by the pattern of its role.
func snapshotDevice(t testing.TB, pattern string) *Device {
	t.Helper()
	tr, err := torchsnapshot.Read(context.Background(), sharedTrace(t, filepath.Join("torch_snapshot", pattern)), nil)
	if err != nil {
		t.Fatal(err)
	}
	return builtDevice(t, tr)
}

// allSnapshots runs a test on every snapshot of the shared folder.
func allSnapshots(t *testing.T, test func(t *testing.T, d *Device)) {
	dir := os.Getenv("GMEMTOP_TRACES")
	if dir == "" {
		t.Skip("needs GMEMTOP_TRACES: traces recorded by others")
	}
	found, _ := filepath.Glob(filepath.Join(dir, "torch_snapshot", "*"))
	for i, f := range found {
		t.Run(string(rune('a'+i)), func(t *testing.T) { test(t, snapshotDevice(t, filepath.Base(f))) })
	}
}

func TestIterationsAndPhasesFollowEachOtherOnEverySnapshot(t *testing.T) {
	allSnapshots(t, func(t *testing.T, d *Device) {
		last := Moment(0)
		for _, x := range d.Iterations().List {
			if x.First < last || x.End < x.First || x.Finish < x.Start || x.PeakAllocated > d.Totals.PeakAllocated {
				t.Errorf("iteration %+v after event %d", x, last)
			}
			if got := d.Allocated.At(x.PeakAt); got != x.PeakAllocated {
				t.Errorf("iteration %d: %d bytes at its peak of %d", x.Index, got, x.PeakAllocated)
			}
			last = x.End
		}
		end, at := int64(-1<<62), Moment(0)
		for _, p := range d.Phases() {
			if p.Start < end || p.First < at || p.End < p.Start || p.Last < p.First {
				t.Errorf("phase %+v after time %d, event %d", p, end, at)
			}
			end, at = p.End, p.Last
		}
	})
}

func TestNoLeverSavesMoreThanThereIsOnEverySnapshot(t *testing.T) {
	allSnapshots(t, func(t *testing.T, d *Device) {
		a, err := d.Autopsy(context.Background(), IEC)
		if err != nil {
			t.Fatal(err)
		}
		if a.Sentence == "" || strings.Contains(a.Sentence, "  ") || !strings.HasSuffix(a.Sentence, ".") {
			t.Errorf("sentence %q", a.Sentence)
		}
		limit := max(d.Totals.PeakAllocated, d.Totals.PeakReserved, d.Totals.EndReserved)
		last := int64(1 << 62)
		for _, l := range a.Levers {
			if l.Saves > limit || l.Saves == 0 || l.Saves > last || l.Text == "" {
				t.Errorf("lever %+v after one of %d, limit %d", l, last, limit)
			}
			last = l.Saves
		}
		for i := 1; i < len(a.Holders); i++ {
			if a.Holders[i].Bytes > a.Holders[i-1].Bytes {
				t.Errorf("holder %d is larger than the one before", i)
			}
		}
	})
}

func TestATraceDoesNotDifferFromItselfOnEverySnapshot(t *testing.T) {
	allSnapshots(t, func(t *testing.T, d *Device) {
		x, err := Compare(context.Background(), d, d)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range append(x.Categories, x.Sites...) {
			if r.A != r.B || r.BlocksA != r.BlocksB || r.Cause != "" {
				t.Errorf("%+v", r)
			}
		}
		for _, m := range x.Metrics {
			if m.A != m.B {
				t.Errorf("%+v", m)
			}
		}
		if !strings.HasPrefix(x.Sentence(IEC), "Both peak at") && len(x.Sites) > 0 {
			t.Errorf("%q", x.Sentence(IEC))
		}
	})
}

// The rows of a diff are the two peaks, whatever stacks are joined.
func TestADiffOfFullAgainstMixedPrecisionAddsUpToBothPeaks(t *testing.T) {
	a, b := snapshotDevice(t, "*memory_snapshot_200.pickle"), snapshotDevice(t, "*memory_snapshot_200_mixed_precision.pickle")
	x, err := Compare(context.Background(), a, b)
	if err != nil {
		t.Fatal(err)
	}
	for name, rows := range map[string][]DiffRow{"categories": x.Categories, "sites": x.Sites} {
		var sa, sb int64
		for _, r := range rows {
			sa, sb = sa+r.A, sb+r.B
		}
		if sa != a.Totals.PeakAllocated || sb != b.Totals.PeakAllocated {
			t.Errorf("%s add up to %d and %d, peaks %d and %d", name, sa, sb, a.Totals.PeakAllocated, b.Totals.PeakAllocated)
		}
	}
	joined := 0
	for _, r := range x.Sites {
		if r.BlocksA > 0 && r.BlocksB > 0 {
			joined++
		}
	}
	if joined < 10 {
		t.Errorf("only %d call sites of %d are in both", joined, len(x.Sites))
	}
	if !strings.HasPrefix(x.Sentence(IEC), "The peak goes from 1.15 GiB to 939 MiB") {
		t.Errorf("%q", x.Sentence(IEC))
	}
	t.Log(x.Sentence(IEC))
}

func TestASnapshotDumpedAfterAnOutOfMemoryIsExplainedFromItsSegmentsAlone(t *testing.T) {
	d := snapshotDevice(t, "*oom_snapshot.pickle")
	a, err := d.Autopsy(context.Background(), IEC)
	if err != nil {
		t.Fatal(err)
	}
	if a.OOM || !a.Inferred || len(a.Causes) == 0 || a.Causes[0].Kind != "capacity" || !a.Causes[0].Main || a.Causes[0].Bytes != -1 {
		t.Errorf("oom %v, inferred %v, causes %+v", a.OOM, a.Inferred, a.Causes)
	}
	if len(a.Holders) == 0 || a.Holders[0].Bytes < 7<<30 || len(a.Levers) == 0 {
		t.Errorf("holders %+v, levers %+v", a.Holders, a.Levers)
	}
}

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

func TestCancelledAnalysisStops(t *testing.T) {
	d := builtDevice(t, unmarkedTrace(20_000))
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := Compare(ctx, d, d); !errors.Is(err, context.Canceled) {
		t.Errorf("compare: %v", err)
	}
	if _, err := Summarise(ctx, d.Timeline(), 0, 0, 8); !errors.Is(err, context.Canceled) {
		t.Errorf("summarise: %v", err)
	}
	if _, err := d.Autopsy(ctx, IEC); err != nil && !errors.Is(err, context.Canceled) {
		t.Errorf("autopsy: %v", err)
	}
}
