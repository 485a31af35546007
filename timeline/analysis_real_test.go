package timeline_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/autopsy"
	"github.com/gmemtop/gmemtop/timeline/runs"
	"github.com/gmemtop/gmemtop/timeline/steps"
	"github.com/gmemtop/gmemtop/timeline/timelinetest"
)

func TestIterationsAndPhasesFollowEachOtherOnEverySnapshot(t *testing.T) {
	timelinetest.Snapshots(t, func(t *testing.T, d *timeline.Device) {
		last := timeline.Moment(0)
		for _, x := range steps.Of(d).List {
			if x.First < last || x.End < x.First || x.Finish < x.Start ||
				x.PeakAllocated > d.Totals.PeakAllocated {
				t.Errorf("iteration %+v after event %d", x, last)
			}
			if got := d.Allocated.At(x.PeakAt); got != x.PeakAllocated {
				t.Errorf("iteration %d: %d bytes at its peak of %d", x.Index, got, x.PeakAllocated)
			}
			last = x.End
		}
		end, at := int64(-1<<62), timeline.Moment(0)
		for _, p := range steps.Phases(d) {
			if p.Start < end || p.First < at || p.End < p.Start || p.Last < p.First {
				t.Errorf("phase %+v after time %d, event %d", p, end, at)
			}
			end, at = p.End, p.Last
		}
	})
}

func TestNoLeverSavesMoreThanExistsOnEverySnapshot(t *testing.T) {
	timelinetest.Snapshots(t, func(t *testing.T, d *timeline.Device) {
		a, err := autopsy.Of(context.Background(), d, timeline.IEC)
		if err != nil {
			t.Fatal(err)
		}
		if a.Sentence == "" || strings.Contains(a.Sentence, "  ") || !strings.HasSuffix(a.Sentence, ".") {
			t.Errorf("sentence %q", a.Sentence)
		}
		limit := max(d.Totals.PeakReservedOrAllocated(), d.Totals.EndReserved.Or(0))
		last := int64(1 << 62)
		for _, l := range a.Levers {
			worth := l.Saves.Or(-1)
			if l.Name == "micro_batch" && worth > 0 { // other levers go first if they save half as much
				worth /= 2
			}
			if l.Saves.Or(-1) > limit || l.Saves.Or(-1) == 0 || worth > last && !l.Elsewhere || l.Text == "" {
				t.Errorf("lever %s saves %v after one worth %d, limit %d: %q",
					l.Name, l.Saves, last, limit, l.Text)
			}
			if !l.Elsewhere { // what needs more GPUs than there are comes behind what these can do
				last = worth
			}
		}
		for i := 1; i < len(a.Holders); i++ {
			if a.Holders[i].Bytes > a.Holders[i-1].Bytes {
				t.Errorf("holder %d is larger than the one before", i)
			}
		}
	})
}

func TestATraceDoesNotDifferFromItselfOnEverySnapshot(t *testing.T) {
	timelinetest.Snapshots(t, func(t *testing.T, d *timeline.Device) {
		x, err := runs.Compare(context.Background(), d, d)
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
		if !strings.HasPrefix(x.Sentence(timeline.IEC), "Both peak at") && len(x.Sites) > 0 {
			t.Errorf("%q", x.Sentence(timeline.IEC))
		}
	})
}

// The rows of a diff add up to what is compared, whichever stacks are joined. B has its peak in its first
// step, before the optimizer's state is there, and A in its last: the highest steady steps are compared.
func TestADiffOfFullAgainstMixedPrecisionAddsUpToBothSteps(t *testing.T) {
	a, b := timelinetest.Snapshot(t, "*memory_snapshot_200.pickle"),
		timelinetest.Snapshot(t, "*memory_snapshot_200_mixed_precision.pickle")
	x, err := runs.Compare(context.Background(), a, b)
	if err != nil {
		t.Fatal(err)
	}
	for name, rows := range map[string][]runs.DiffRow{"categories": x.Categories, "sites": x.Sites} {
		var sa, sb int64
		for _, r := range rows {
			sa, sb = sa+r.A, sb+r.B
		}
		wantA, wantB := a.Totals.PeakAllocated, steps.Of(b).List[2].PeakAllocated
		if sa != wantA || sb != wantB {
			t.Errorf("%s add up to %d and %d, the steps peak at %d and %d", name, sa, sb, wantA, wantB)
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
	if !strings.HasPrefix(x.Sentence(timeline.IEC), "The highest steady step goes from 1.15 GiB to 934 MiB") {
		t.Errorf("%q", x.Sentence(timeline.IEC))
	}
	if !strings.HasPrefix(x.Note(), "B has its peak in a warm-up step, iteration 1, and A in a steady one") {
		t.Errorf("the note is %q", x.Note())
	}
	for _, r := range x.Categories {
		if r.Name == timeline.OptimizerState.String() && max(r.A-r.B, r.B-r.A) > 1<<20 {
			t.Errorf("the optimizer's state is %d bytes in A and %d in B, of one model", r.A, r.B)
		}
	}
	t.Log(x.Sentence(timeline.IEC))
}

func TestASnapshotAfterAnOutOfMemoryIsExplainedFromItsSegmentsAlone(t *testing.T) {
	d := timelinetest.Snapshot(t, "*oom_snapshot.pickle")
	a, err := autopsy.Of(context.Background(), d, timeline.IEC)
	if err != nil {
		t.Fatal(err)
	}
	if a.OOM || !a.Inferred || len(a.Causes) == 0 || a.Causes[0].Kind != "capacity" || !a.Causes[0].Main ||
		a.Causes[0].Bytes.IsKnown() {
		t.Errorf("oom %v, inferred %v, causes %+v", a.OOM, a.Inferred, a.Causes)
	}
	if !strings.HasPrefix(a.Sentence, "GPU 0 is full of parameters: ~11.0 GiB of the 11.0 GiB reserved") ||
		!strings.Contains(a.Sentence, "Load the weights in a smaller type") {
		t.Errorf("%q", a.Sentence)
	}
	if len(a.Holders) == 0 || a.Holders[0].Bytes < 7<<30 || len(a.Levers) == 0 {
		t.Errorf("holders %+v, levers %+v", a.Holders, a.Levers)
	}
	// as the sentence has them
	for _, name := range []string{"smaller_weights", "weights_on_host", "shard_parameters"} {
		if !slices.Contains(a.Named, name) ||
			!slices.ContainsFunc(a.Levers, func(l autopsy.Lever) bool { return l.Name == name }) {
			t.Errorf("%s is not named, or not in the list: %v, %+v", name, a.Named, a.Levers)
		}
	}
}

func TestCancelledAnalysisStops(t *testing.T) {
	d := timelinetest.Built(t, timelinetest.Unmarked(20_000))
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := runs.Compare(ctx, d, d); !errors.Is(err, context.Canceled) {
		t.Errorf("compare: %v", err)
	}
	if _, err := runs.Summarise(ctx, d.Timeline(), 0, 0, 8); !errors.Is(err, context.Canceled) {
		t.Errorf("summarise: %v", err)
	}
	if _, err := autopsy.Of(ctx, d, timeline.IEC); err != nil && !errors.Is(err, context.Canceled) {
		t.Errorf("autopsy: %v", err)
	}
}
