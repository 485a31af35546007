package runs_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/runs"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

// ranksOf are n ranks in stages of a pipeline, of which each holds a GiB more than the one before.
func ranksOf(n, stages int) []runs.GroupRank {
	list := make([]runs.GroupRank, n)
	for i, p := range inStep(n) {
		stage := int64(i * stages / n)
		p.Bytes = maybe.Known(p.Bytes.Or(0) + stage<<30)
		m := runs.GroupRank{ID: n - i, Rank: maybe.Known(int64(i)), PID: 100 + i, Host: "node0", Usual: p,
			Step: maybe.Known(100), Room: maybe.Known(80 << 30)}
		if stages > 1 {
			m.Axes = []traces.Axis{{Name: traces.Pipeline, At: stage, Of: int64(stages)}}
		}
		m.Entries = [...]maybe.Int{maybe.Known(200 << 20), maybe.Known(200 << 20), maybe.Known(400 << 20),
			p.Bytes.Minus(maybe.Known(800 << 20))}
		list[i] = m
	}
	return list
}

func TestStagesOfAPipelineAreNotComparedWithEachOther(t *testing.T) {
	g := runs.NewGroup(ranksOf(64, 4))
	if g.First >= 0 || len(g.Peers.Differences) > 0 || len(g.Classes) != 4 {
		t.Errorf("%d classes, first %d, %+v", len(g.Classes), g.First, g.Peers.Differences)
	}
	if s := g.Sentence(timeline.IEC); !strings.Contains(s, "all alike") {
		t.Error(s)
	}
	odd := ranksOf(64, 4)
	odd[17].Usual.Bytes = maybe.Known(odd[17].Usual.Bytes.Or(0) + 900<<20)
	odd[17].Entries[runs.EntryOptimizer] = maybe.Known(1300 << 20)
	g = runs.NewGroup(odd)
	if g.First != 17 || g.Why.Entry != runs.EntryOptimizer || g.Why.EntryBytes != 900<<20 ||
		g.Order()[0] != 17 {
		t.Errorf("first %d, %+v", g.First, g.Why)
	}
	for _, want := range []string{"rank 17 holds ", "the others of stage 1", "in optimizer state"} {
		if s := g.Sentence(timeline.IEC); !strings.Contains(s, want) {
			t.Errorf("%q lacks %q", s, want)
		}
	}
	if k := g.Typical(17); k < 0 || g.Class[k] != g.Class[17] || k == 17 {
		t.Errorf("rank %d is typical of the stage of rank 17", k)
	}
}

func TestTheRankThatTheOthersWaitForComesFirstIfAllHoldTheSame(t *testing.T) {
	list := ranksOf(16, 1)
	later(&list[5].Usual.Forward, 20*ms)
	g := runs.NewGroup(list)
	if g.First != 5 || !g.Why.Slow || !strings.Contains(g.Sentence(timeline.IEC), "rank 5 is the slowest") {
		t.Errorf("%s %+v", g.Sentence(timeline.IEC), g.Why)
	}
}

func TestWhoRunsOutFirstIsWhoReachesItsRoomInTheFewestSteps(t *testing.T) {
	list := ranksOf(8, 1)
	list[2].Growth = 1 << 20
	list[6].Growth = 3 << 20
	list[7].Growth, list[7].Room = 50<<20, maybe.Int{} // nobody knows how much it may have
	g := runs.NewGroup(list)
	steps, _ := g.Out.Steps.Value()
	if g.Out.Index != 6 || steps != (80<<30-list[6].Usual.Bytes.Or(0))/(3<<20) ||
		g.Out.Time.Or(0)/ms < steps*40 || g.Out.Time.Or(0)/ms > (steps+1)*40 {
		t.Errorf("%+v", g.Out)
	}
	list[6].Is, list[2].Growth = runs.Done, 0
	if g = runs.NewGroup(list); g.Out.Index != 7 || g.Out.Steps.IsKnown() {
		t.Errorf("without room: %+v", g.Out)
	}
	if s := g.Sentence(timeline.IEC); !strings.Contains(s, "rank 7 grows fastest, by 50.0 MiB a step") {
		t.Error(s)
	}
}

// What failed, is lost or late stands above what differs, and is not compared any more once it has ended.
// Ranks that have ended count for nothing while others train. Once all have ended, they are compared as
// before.
func TestARunThatIsOverIsComparedAsItWas(t *testing.T) {
	list := ranksOf(8, 1)
	list[3].Usual.Bytes = maybe.Known(list[3].Usual.Bytes.Or(0) + 900<<20)
	for i := range list[:7] {
		list[i].Is = runs.Done
	}
	if g := runs.NewGroup(slices.Clone(list)); g.First >= 0 || g.Over {
		t.Errorf("while one trains: first %d, over %v", g.First, g.Over)
	}
	list[7].Is = runs.Failed
	g := runs.NewGroup(list)
	s := g.Sentence(timeline.IEC)
	if g.First != 3 || !g.Over || !strings.HasPrefix(s, "rank 3 held 897 MiB more than the others") {
		t.Errorf("first %d, over %v: %s", g.First, g.Over, s)
	}
}

func TestTheOrderOfRanksIsThatOfTheirTrouble(t *testing.T) {
	list := ranksOf(32, 1)
	list[3].State = runs.State{Is: runs.Late, Word: "late"}
	list[4].State = runs.State{Is: runs.Missing, Word: "lost"}
	list[9].State = runs.State{Is: runs.Failed, Word: "RuntimeError"}
	list[9].Usual.Bytes = maybe.Known(1)
	list[20].Usual.Bytes = maybe.Known(4 << 30)
	list[30].Lost = 7
	g := runs.NewGroup(list)
	if got := g.Order()[:4]; !slices.Equal(got, []int{9, 4, 20, 3}) {
		t.Errorf("%v", got)
	}
	if got := g.Order(); len(got) != 32 || !slices.IsSorted(got[4:]) {
		t.Errorf("%v", got)
	}
	for _, d := range g.Peers.Differences {
		if d.Peer == 9 {
			t.Errorf("a rank that failed is compared: %+v", d)
		}
	}
	want := "1 rank failed, 1 rank lost, 1 rank late, 7 steps never arrived"
	if s := g.Sentence(timeline.IEC); !strings.Contains(s, want) {
		t.Errorf("%q lacks %q", s, want)
	}
}

func samples(from int64, values ...int64) (list []runs.Sample) {
	for i, v := range values {
		list = append(list, runs.Sample{Step: from + int64(i), Value: v})
	}
	return list
}

func TestADifferenceBeganWithTheLastStepsThatShowIt(t *testing.T) {
	flat := slices.Repeat([]int64{100}, 40)
	others := [][]runs.Sample{samples(0, flat...), samples(3, flat...), samples(0, flat[:20]...)}
	jump := func(at, by int64) []int64 {
		v := slices.Clone(flat)
		for i := at; i < 40; i++ {
			v[i] += by
		}
		return v
	}
	for _, c := range []struct {
		name   string
		own    []runs.Sample
		step   maybe.Int
		always bool
	}{
		{"since a step", samples(0, jump(17, 50)...), maybe.Known(17), false},
		{"it holds less", samples(0, jump(23, -50)...), maybe.Known(23), false},
		{"one step in between was as usual", func() []runs.Sample {
			v := jump(10, 50)
			v[25] = 100
			return samples(0, v...)
		}(), maybe.Known(10), false},
		{"two steps in a row were as usual", func() []runs.Sample {
			v := jump(10, 50)
			v[24], v[25] = 100, 100
			return samples(0, v...)
		}(), maybe.Known(10), false},
		{"three steps in a row were as usual", func() []runs.Sample {
			v := jump(10, 50)
			v[24], v[25], v[26] = 100, 100, 100
			return samples(0, v...)
		}(), maybe.Known(27), false},
		{"it differed before, and not for a while", func() []runs.Sample {
			v := jump(30, 50)
			v[2], v[3], v[4], v[5] = 150, 150, 150, 150
			return samples(0, v...)
		}(), maybe.Known(30), false},
		{"from the first step that is kept", samples(5, jump(0, 50)...), maybe.Known(5), true},
		{"it does not differ", samples(0, flat...), maybe.Int{}, false},
		{"no step in common", samples(900, flat...), maybe.Int{}, false},
		{"none", nil, maybe.Int{}, false},
	} {
		if step, always := runs.Since(c.own, others); step != c.step || always != c.always {
			t.Errorf("%s: step %v, always %v; want %v, %v", c.name, step, always, c.step, c.always)
		}
	}
}

func BenchmarkNewGroup(b *testing.B) {
	list := ranksOf(1024, 8)
	list[700].Usual.Bytes = maybe.Known(9 << 30)
	b.ReportAllocs()
	for b.Loop() {
		if g := runs.NewGroup(slices.Clone(list)); g.First != 700 {
			b.Fatal(g.First)
		}
	}
}
