package runs_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/runs"
	"github.com/gmemtop/gmemtop/timeline/timelinetest"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

// diverges is the definition of where a run diverges, in the words of Run: the rank and the place; -1 for
// none. Nothing is voted on: allocations are counted one by one.
func diverges(r *runs.Run) (rank, index int) {
	var able []*runs.RankSummary
	outliers := 0
	for i := range r.Ranks {
		if s := &r.Ranks[i]; s.Err == nil && len(s.Sites) > 0 {
			if able = append(able, s); i < r.Outliers {
				outliers++
			}
		}
	}
	if len(able) <= 2 {
		return -1, -1
	}
	first := func(of []*runs.RankSummary) (rank, index int) {
		for i := 0; ; i++ {
			count, usual := map[runs.SiteSignature]int{}, runs.SiteSignature{}
			for _, s := range able {
				if i < len(s.Sites) {
					count[s.Sites[i]]++
				}
			}
			most := 0
			for sig, n := range count {
				if n > most {
					usual, most = sig, n
				}
			}
			if 2*most <= len(able) {
				return -1, -1
			}
			for _, s := range of {
				if i < len(s.Sites) && s.Sites[i] != usual {
					return int(s.Rank.Or(-1)), i
				}
			}
		}
	}
	if outliers == 0 {
		return first(able)
	}
	for k := range outliers {
		if rank, index := first(able[k : k+1]); rank >= 0 {
			return rank, index
		}
	}
	return -1, -1
}

func TestARunDivergesWhereARankFirstLeavesTheMajority(t *testing.T) {
	seen := map[bool]int{}
	for seed := range uint64(4000) {
		rng := rand.New(rand.NewPCG(seed, 17))
		usual := make([]runs.SiteSignature, 1+rng.IntN(6))
		for i := range usual {
			usual[i] = runs.SiteSignature{Hash: rng.Uint64N(2), Size: 1 + rng.Int64N(2)}
		}
		ranks := make([]runs.RankSummary, 1+rng.IntN(8))
		odd := 1 + rng.IntN(12) // a place in so many is another allocation
		for k := range ranks {
			s := &ranks[k]
			s.Rank, s.Totals.PeakAllocated = maybe.Known(int64(k)), 1<<30
			s.Sites = slices.Clone(usual)
			for i := range s.Sites {
				if rng.IntN(odd) == 0 {
					s.Sites[i] = runs.SiteSignature{Hash: rng.Uint64N(3), Size: 1 + rng.Int64N(2)}
				}
			}
			switch rng.IntN(8) {
			case 0:
				s.Sites = s.Sites[:rng.IntN(len(usual)+1)]
			case 1:
				s.Totals.PeakAllocated = 2 << 30
			case 2:
				s.Err = errors.New("cut")
			}
		}
		r := runs.Build(ranks)
		rank, index := -1, -1
		if r.Divergence != nil {
			rank, index = int(r.Divergence.Of.Rank.Or(-1)), r.Divergence.Index
		}
		if wantRank, want := diverges(r); rank != wantRank || index != want {
			t.Fatalf("seed %d: rank %d diverges at %d, not rank %d at %d: %+v", seed, rank, index, wantRank,
				want, r)
		}
		seen[rank >= 0]++
	}
	if seen[false] < 400 || seen[true] < 400 {
		t.Errorf("runs that do not diverge and that do: %v", seen)
	}
}

func TestAnOutlierIsFarOffTheMedianInShareInBytesAndInSpread(t *testing.T) {
	const mib = 1 << 20
	for _, c := range []struct {
		why      string
		peaks    []int64
		outliers []int // ranks, in their order
	}{
		{"one rank", []int64{mib}, nil},
		{"two ranks: nothing says which is odd", []int64{100 * mib, 9000 * mib}, nil},
		{"three ranks", []int64{100 * mib, 9000 * mib, 100 * mib}, []int{1}},
		{"64 MiB off", []int64{100 * mib, 164 * mib, 100 * mib}, nil},
		{"a byte more than 64 MiB off", []int64{100 * mib, 164*mib + 1, 100 * mib}, []int{1}},
		{"1 % off", []int64{20000 * mib, 20200 * mib, 20000 * mib}, nil},
		{"a byte more than 1 % off", []int64{20000 * mib, 20000 * mib, 20200*mib + 1}, []int{2}},
		{"less than the others", []int64{500 * mib, 500 * mib, 400 * mib, 500 * mib}, []int{2}},
		// the median is 600, the median deviation 100: 3.5 standard deviations are 519
		{"within the spread of the others", []int64{400 * mib, 500 * mib, 600 * mib, 700 * mib, 1118 * mib},
			nil},
		{"outside the spread of the others", []int64{400 * mib, 500 * mib, 600 * mib, 700 * mib, 1119 * mib},
			[]int{4}},
		{"the farthest first",
			[]int64{300 * mib, 100 * mib, 100 * mib, 500 * mib, 100 * mib, 100 * mib, 300 * mib},
			[]int{3, 0, 6}},
	} {
		ranks := make([]runs.RankSummary, len(c.peaks))
		for i, n := range c.peaks {
			ranks[i].Rank, ranks[i].Totals.PeakAllocated = maybe.Known(int64(i)), n
		}
		slices.Reverse(ranks)
		r := runs.Build(ranks)
		var outliers, others []int
		for i := range r.Ranks {
			if i < r.Outliers {
				outliers = append(outliers, int(r.Ranks[i].Rank.Or(-1)))
			} else {
				others = append(others, int(r.Ranks[i].Rank.Or(-1)))
			}
		}
		if !slices.Equal(outliers, c.outliers) || !slices.IsSorted(others) {
			t.Errorf("%s: outliers %v, then %v", c.why, outliers, others)
		}
	}
}

// What was allocated before the first iteration is compared only where a recording begins empty: elsewhere it
// depends on when the recording began.
func TestRanksAreComparedFromTheirFirstIterationUnlessTheyBeginEmpty(t *testing.T) {
	const script = "gpu 0\nseg 0x1000000 64m\n+ early 1m addr=0x1000000\n+ also 1m addr=0x1100000\n" +
		"mark iteration 3500 7500 one\nmark iteration 7500 9500 two\n" +
		"+ a 2m addr=0x1200000\n- a\n+ b 3m addr=0x1200000\n- b\n+ c 4m addr=0x1200000\n- c\n"
	for _, c := range []struct {
		end   string
		sizes []int64
		first []int32
	}{
		{"", []int64{2 << 20, 3 << 20, 4 << 20}, []int32{0, 2}},
		{"empty\n", []int64{1 << 20, 1 << 20, 2 << 20, 3 << 20, 4 << 20}, []int32{2, 4}},
	} {
		tl := timelinetest.Script(t, script+c.end)
		r, err := runs.Summarise(context.Background(), tl, 0, 0, 4)
		if err != nil {
			t.Fatal(err)
		}
		var sizes []int64
		for _, s := range r.Sites {
			sizes = append(sizes, s.Size)
		}
		var first []int32
		for _, s := range r.Steps {
			first = append(first, s.First)
		}
		if !slices.Equal(sizes, c.sizes) || !slices.Equal(first, c.first) {
			t.Errorf("begins empty %v: allocations %v, iterations begin at %v",
				tl.Main().Totals.BeginsEmpty, sizes, first)
		}
	}
}

func TestOnlyTheFirstAllocationsOfARankAreKept(t *testing.T) {
	tl := timelinetest.Script(t, "tick 1\ngpu 0\nmark iteration 0 4096 one\nmark iteration 4096 8192 two\n"+
		"mark iteration 8192 12288 three\nrepeat 6144\n+ a 1m\n- a\nend\n")
	r, err := runs.Summarise(context.Background(), tl, 0, 0, 4)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Sites) != 4096 || len(r.Steps) != 2 {
		t.Errorf("%d allocations, iterations %v", len(r.Sites), r.Steps)
	}
}

// The strip is drawn on the run's clock: a column holds the most bytes of its stretch, whatever the width.
// The value that the first event of a stretch changes counts as well.
func TestAColumnOfAStripIsTheMostOfItsStretch(t *testing.T) {
	tl := timelinetest.Script(t,
		"gpu 0\nseg 0x1000000 64m\nat 1000\n+ a 1m\n- a\n+ b 2m\n+ c 4m\n- c\n- b\nempty\n")
	d := tl.Main()
	first, last := d.Span()
	for _, c := range []struct {
		from, to int64
		n        int
	}{
		{first, last, 1}, {first, last, 3}, {first, last, 50}, {first - 2000, last + 2000, 24}, {0, 4000, 7},
		{last, last + 1000, 2}, {last - 1, last + 1, 2}, {first - 100, first, 2}, {first - 1, first + 1, 2},
		{first + 1, first + 6001, 6}, // columns begin just after events
		{first, last, 0}, {5, 4, 3},
	} {
		r, err := runs.Summarise(context.Background(), tl, c.from, c.to, c.n)
		if err != nil {
			t.Fatal(err)
		}
		var want []int64
		for i := range c.n {
			if c.to <= c.from {
				break
			}
			width := float64(c.to-c.from) / float64(c.n)
			lo, hi := c.from+int64(float64(i)*width), c.from+int64(float64(i+1)*width)
			most := int64(0)
			for m := range timeline.Moment(d.Len()) { // a value holds until the next event changes it
				if d.Time(m) < hi && d.Time(m+1) >= lo {
					most = max(most, d.Allocated.At(m))
				}
			}
			want = append(want, most)
		}
		if !slices.Equal(r.Strip, want) {
			t.Errorf("[%d, %d) in %d columns: %v, not %v", c.from, c.to, c.n, r.Strip, want)
		}
	}
}

func TestTheSentenceOfARunNamesWhatStandsOut(t *testing.T) {
	const mib = 1 << 20
	rank := func(k int, peak int64, sizes ...int64) runs.RankSummary {
		s := runs.RankSummary{Rank: maybe.Known(int64(k)), Totals: timeline.Totals{PeakAllocated: peak * mib}}
		for _, n := range sizes {
			s.Sites = append(s.Sites, runs.SiteSignature{Size: n * mib, Name: "f m.py:1"})
		}
		return s
	}
	unnumbered := rank(0, 500, 2)
	unnumbered.Rank, unnumbered.Path = maybe.Int{}, "run/host.pickle"
	alike := rank(0, 100, 1, 3)
	alike.Rank, alike.Path = maybe.Int{}, "run/other.pickle"
	cut := runs.RankSummary{Rank: maybe.Known(9), Err: errors.New("cut")}
	for _, c := range []struct {
		ranks []runs.RankSummary
		want  string
	}{
		{[]runs.RankSummary{cut, rank(0, 5)}, "One rank, peak 5.00 MiB. 1 could not be read."},
		{[]runs.RankSummary{rank(0, 300), rank(1, 100), rank(2, 100), rank(3, 500), rank(4, 100)},
			"3 ranks peak at 100 MiB, rank 3 at 500 MiB; 1 more stands out."},
		{[]runs.RankSummary{rank(0, 100, 1, 2), rank(1, 100, 1, 2), rank(2, 100, 1, 3)},
			"3 ranks peak at 100 MiB, none stands out. First allocation of rank 2 that differs: " +
				"allocation 2, f m.py:1: 3.00 MiB where the others allocate 2.00 MiB."},
		{[]runs.RankSummary{rank(0, 100, 1), rank(1, 500, 1), rank(2, 300, 2), rank(3, 100, 1),
			rank(4, 100, 1)},
			"3 ranks peak at 100 MiB, rank 1 at 500 MiB; 1 more stands out. First allocation of rank 2 " +
				"that differs: allocation 1, f m.py:1: 2.00 MiB where the others allocate 1.00 MiB."},
		{[]runs.RankSummary{rank(0, 100, 1), rank(1, 500, 2), rank(2, 100, 1), cut},
			"2 ranks peak at 100 MiB, rank 1 at 500 MiB. First allocation that differs: " +
				"allocation 1, f m.py:1: 2.00 MiB where the others allocate 1.00 MiB. 1 could not be read."},
		{[]runs.RankSummary{rank(0, 100, 1), unnumbered, rank(2, 100, 1)},
			"2 recordings peak at 100 MiB, host.pickle at 500 MiB. First allocation that differs: " +
				"allocation 1, f m.py:1: 2.00 MiB where the others allocate 1.00 MiB."},
		{[]runs.RankSummary{alike, rank(0, 100, 1, 2), rank(1, 100, 1, 2)},
			"3 recordings peak at 100 MiB, none stands out. First allocation of other.pickle that differs: " +
				"allocation 2, f m.py:1: 3.00 MiB where the others allocate 2.00 MiB."},
	} {
		if got := runs.Build(c.ranks).Sentence(timeline.IEC); got != c.want {
			t.Errorf("%q, not\n%q", got, c.want)
		}
	}
}
