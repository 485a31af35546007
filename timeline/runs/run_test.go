package runs_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/runs"
	"github.com/gmemtop/gmemtop/timeline/timelinetest"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

// rankScript is the recording of one rank with three steps; odd makes the third allocate more at another
// place.
func rankScript(rank int, odd bool) string {
	extra := "+ x 8m c\n- x\n"
	if odd {
		extra = "+ x 700m d\n- x\n"
	}
	step := "+ a 100m a\n+ b 50m b\n- a\n%s- b\n"
	return fmt.Sprintf("rank %d 64\nstack a forward m.py:1 < main t.py:1\nstack b forward m.py:2 < main "+
		"t.py:1\nstack c tail m.py:3 < main t.py:1\n"+
		"stack d dispatch moe.py:9 < main t.py:1\nmark iteration 0 7000 ProfilerStep#8\nmark iteration "+
		"7000 13000 ProfilerStep#9\nmark iteration 13000 20000 ProfilerStep#10\n", rank) +
		fmt.Sprintf(step, "+ x 8m c\n- x\n") + fmt.Sprintf(step, "+ x 8m c\n- x\n") + fmt.Sprintf(step, extra)
}

func summaries(t testing.TB, n int, odd func(int) bool) []runs.RankSummary {
	t.Helper()
	var all []runs.RankSummary
	for rank := range n {
		r, err := runs.Summarise(context.Background(),
			timelinetest.Script(t, rankScript(rank, odd(rank))), 0, 24000, 8)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, r)
	}
	return all
}

func TestARunPutsTheOutlierFirstAndNamesTheFirstAllocationThatDiffers(t *testing.T) {
	r := runs.Build(summaries(t, 64, func(rank int) bool { return rank == 7 }))
	if r.Outliers != 1 || r.Ranks[0].Rank != maybe.Known(7) ||
		r.Ranks[1].Rank != maybe.Known(0) || r.Ranks[8].Rank != maybe.Known(8) {
		t.Errorf("%d outliers, order %v %v %v", r.Outliers, r.Ranks[0].Rank, r.Ranks[1].Rank, r.Ranks[8].Rank)
	}
	const want = "63 ranks peak at 150 MiB, rank 7 at 750 MiB. First allocation that differs: " +
		"ProfilerStep#10, allocation 3, dispatch moe.py:9: " +
		"700 MiB where the others allocate 8.00 MiB in tail m.py:3."
	if r.Sentence(timeline.IEC) != want {
		t.Errorf("sentence %q\nwant     %q", r.Sentence(timeline.IEC), want)
	}
	if d := r.Divergence; d == nil || d.Of.Rank != maybe.Known(7) || d.Index != 8 || d.Size != 700<<20 {
		t.Errorf("divergence %+v", d)
	}
}

func TestARunWithoutAnOutlierHasNoDivergence(t *testing.T) {
	r := runs.Build(summaries(t, 8, func(int) bool { return false }))
	if r.Outliers != 0 || r.Divergence != nil ||
		r.Sentence(timeline.IEC) != "8 ranks peak at 150 MiB, none stands out." {
		t.Errorf("%d outliers, %+v, %q", r.Outliers, r.Divergence, r.Sentence(timeline.IEC))
	}
}

// gmemtop *.pickle opens files that have nothing to do with each other: then no median speaks for them.
func TestRecordingsThatAreNoRanksAreNotSaidToAgree(t *testing.T) {
	of := func(path string, peak int64) runs.RankSummary {
		return runs.RankSummary{Path: path, Totals: timeline.Totals{PeakAllocated: peak}}
	}
	list := []runs.RankSummary{of("a/x.pickle", 1<<30), of("a/y.pickle", 9<<30), of("z.pickle", 4<<30)}
	r := runs.Build(list)
	const want = "3 recordings peak between 1.00 GiB and 9.00 GiB: y.pickle is the highest."
	if got := r.Sentence(timeline.IEC); got != want {
		t.Errorf("%q, not %q", got, want)
	}
	if r = runs.Build([]runs.RankSummary{of("x", 1<<30), of("y", 1<<30)}); r.Numbered() ||
		r.Sentence(timeline.IEC) != "2 recordings peak at 1.00 GiB, none stands out." {
		t.Errorf("%q", r.Sentence(timeline.IEC))
	}
	list[0].Rank = maybe.Known(1) // of another run: beside it, two files without a number would look the same
	if r = runs.Build(list); r.Numbered() {
		t.Errorf("of three recordings one has a rank, and all are taken for ranks")
	}
}

func TestARankThatCannotBeReadIsCountedAndNoOutlier(t *testing.T) {
	all := summaries(t, 4, func(int) bool { return false })
	all = append(all, runs.RankSummary{Rank: maybe.Known(4), Err: errors.New("cut")})
	r := runs.Build(all)
	if r.Outliers != 0 || !strings.HasSuffix(r.Sentence(timeline.IEC), "1 could not be read.") {
		t.Errorf("%d outliers, %q", r.Outliers, r.Sentence(timeline.IEC))
	}
	r = runs.Build([]runs.RankSummary{{Err: errors.New("cut")}})
	if r.Sentence(timeline.IEC) != "The only rank could not be read." {
		t.Errorf("%q", r.Sentence(timeline.IEC))
	}
	if r := runs.Build(nil); r.Outliers != 0 || r.Divergence != nil {
		t.Errorf("empty run: %+v", r)
	}
}

// The strip's maximum is the peak, wherever the run's clock puts the recording.
func TestAStripHoldsThePeakAndNothingOutsideTheRecording(t *testing.T) {
	r, err := runs.Summarise(context.Background(), timelinetest.Script(t, rankScript(0, true)), -24000,
		24000, 16)
	if err != nil {
		t.Fatal(err)
	}
	high := int64(0)
	for i, v := range r.Strip {
		high = max(high, v)
		if i < 8 && v != 0 {
			t.Errorf("column %d before the recording has %d bytes", i, v)
		}
	}
	if high != r.Totals.PeakAllocated {
		t.Errorf("strip's maximum %d, peak %d", high, r.Totals.PeakAllocated)
	}
}

func TestOfTwoRanksNeitherIsAnOutlier(t *testing.T) {
	of := func(rank, peak int64) runs.RankSummary {
		return runs.RankSummary{Rank: maybe.Known(rank), Totals: timeline.Totals{PeakAllocated: peak}}
	}
	for others, want := range []int{0, 0, 1, 1} {
		list := []runs.RankSummary{of(9, 9<<30)}
		for i := range others {
			list = append(list, of(int64(i), 1<<30))
		}
		if r := runs.Build(list); r.Outliers != want {
			t.Errorf("one rank of 9 GiB and %d of 1 GiB: %d outliers, not %d", others, r.Outliers, want)
		}
	}
}

func BenchmarkBuildRunOf1024Ranks(b *testing.B) {
	all := summaries(b, 1024, func(rank int) bool { return rank == 700 })
	const many = 4096 // signatures of a long recording
	for i := range all {
		for len(all[i].Sites) < many {
			all[i].Sites = append(all[i].Sites,
				all[i].Sites[:min(len(all[i].Sites), many-len(all[i].Sites))]...)
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		runs.Build(all)
	}
}
