package ranks

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/timeline/runs"
	"github.com/gmemtop/gmemtop/traces/maybe"
	"github.com/gmemtop/gmemtop/tui/canvas"
	"github.com/gmemtop/gmemtop/tui/leaf"
	"github.com/gmemtop/gmemtop/tui/viewtest"
)

// run makes a run of n ranks from a few trainings: ranks in odd allocate larger batches, ranks in broken
// could not be read.
func run(t testing.TB, n int, odd, broken map[int]bool) *runs.Run {
	t.Helper()
	summarise := func(o viewtest.Training) runs.RankSummary {
		r, err := runs.Summarise(t.Context(), o.Timeline(t), 0, 0, 128)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	usual := summarise(viewtest.Training{Iterations: 4, Layers: 6, Scale: 8})
	other := summarise(viewtest.Training{Iterations: 4, Layers: 6, Scale: 8, Odd: 3})
	ranks := make([]runs.RankSummary, n)
	for i := range ranks {
		ranks[i] = usual
		if odd[i] {
			ranks[i] = other
		}
		if broken[i] {
			ranks[i] = runs.RankSummary{Err: errors.New("torch_snapshot: byte 17: the file ends early")}
		}
		ranks[i].Rank = maybe.Known(int64(i))
		ranks[i].Path, ranks[i].Host = fmt.Sprintf("run/rank%d.pickle", i), fmt.Sprintf("node%d", i/8)
	}
	return runs.Build(ranks)
}

func open(t *testing.T, r *runs.Run) (*viewtest.Screen, *view) {
	t.Helper()
	v := New().(*view)
	sc := viewtest.Open(t, v)
	sc.State.Run = r
	sc.Send(leaf.ChangedMsg{})
	sc.Text(120, 36)
	return sc, v
}

func TestGoldens(t *testing.T) {
	for name, r := range map[string]*runs.Run{
		"8-ranks":    run(t, 8, map[int]bool{5: true}, nil),
		"64-ranks":   run(t, 64, map[int]bool{7: true, 40: true}, map[int]bool{9: true}),
		"1024-ranks": run(t, 1024, map[int]bool{700: true}, nil),
		"all-alike":  run(t, 16, nil, nil),
	} {
		t.Run(name, func(t *testing.T) {
			sc, _ := open(t, r)
			sc.Golden(name)
		})
	}
}

func TestEveryRankIsInExactlyOneLane(t *testing.T) {
	for _, n := range []int{1, 8, 63, 64, 65, 512, 1024} {
		sc, v := open(t, run(t, n, map[int]bool{n / 2: true}, nil))
		for _, rows := range []int{1, 2, 3, 8, 20, 100} {
			for _, mono := range []bool{false, true} {
				th := *sc.State.Theme
				th.Mono = mono
				sc.State.Theme = &th
				seen := map[int]int{}
				for _, l := range v.share(sc.State, rows) {
					if l.y < 0 || l.y >= rows {
						t.Errorf("%d ranks in %d rows: a lane is in row %d", n, rows, l.y)
					}
					for _, i := range l.ranks {
						seen[i]++
					}
				}
				for i := range n {
					if seen[i] != 1 && (rows > 1 || n == 1) {
						t.Fatalf("%d ranks in %d rows, mono %v: rank %d is in %d lanes, want one",
							n, rows, mono, i, seen[i])
					}
				}
			}
		}
	}
}

func TestTheStripKeepsTheMaximumAtEveryWidth(t *testing.T) {
	r := run(t, 16, nil, nil)
	r.Ranks[3].Strip = make([]int64, 128)
	r.Ranks[3].Strip[77] = 1 << 50 // one spike
	for _, w := range []int{1, 3, 60, 128, 129, 300} {
		top := int64(0)
		for _, x := range values(r, lane{ranks: []int{0, 3, 5}}, w) {
			top = max(top, x)
		}
		if top != 1<<50 {
			t.Errorf("at a width of %d cells the spike is %d", w, top)
		}
	}
}

func TestOutliersComeFirstAndAreMarked(t *testing.T) {
	sc, v := open(t, run(t, 64, map[int]bool{7: true}, nil))
	if got := sc.State.Run.Ranks[v.order[0]].Rank; got != maybe.Known(7) {
		t.Fatalf("rank %v comes first", got)
	}
	for _, line := range strings.Split(sc.Text(120, 36), "\n") {
		if strings.Contains(line, "▲") && strings.Contains(line, " 7 ") {
			return
		}
	}
	t.Error("rank 7 is not marked")
}

func TestEnterOpensTheRank(t *testing.T) {
	sc, v := open(t, run(t, 8, nil, map[int]bool{4: true}))
	sc.Press("down", "down", "enter")
	want := sc.State.Run.Ranks[v.order[2]].Path
	if len(sc.Sent) != 1 || sc.Sent[0] != (leaf.OpenRankMsg{Path: want}) {
		t.Errorf("enter sent %v, want the rank at %s", sc.Sent, want)
	}
	for row, i := range v.order {
		if sc.State.Run.Ranks[i].Err != nil {
			v.table.Select(row)
		}
	}
	sc.Press("enter")
	if toast, ok := sc.Sent[0].(leaf.ToastMsg); !ok || !toast.Error ||
		!strings.Contains(toast.Text, "rank 4") {
		t.Errorf("enter on a rank that cannot be read sent %v", sc.Sent)
	}
}

func TestAClickOnTheStripSelectsTheRank(t *testing.T) {
	sc, v := open(t, run(t, 8, map[int]bool{5: true}, nil))
	for _, l := range v.lanes {
		sc.Click(v.strip.X+30, v.strip.Y+l.y)
		if got := v.order[v.table.Selected()]; got != l.ranks[0] {
			t.Errorf("a click on lane %d selected rank %d", l.y, got)
		}
	}
}

// Recordings that name no rank go by their files, in the strip and in the table.
func TestRecordingsWithoutARankGoByTheirFiles(t *testing.T) {
	r := run(t, 3, nil, nil)
	for i := range r.Ranks {
		r.Ranks[i].Rank = maybe.Int{}
	}
	sc, _ := open(t, r)
	for i := range 3 {
		if n := strings.Count(sc.Text(120, 36), fmt.Sprintf("rank%d.pickle", i)); n < 2 {
			t.Errorf("file %d is named %d times:\n%s", i, n, sc.Text(120, 36))
		}
	}
}

func TestSortingByPeakKeepsTheSelectedRank(t *testing.T) {
	sc, v := open(t, run(t, 16, map[int]bool{5: true}, nil))
	sc.Press("down", "down", "down")
	before := v.order[v.table.Selected()]
	sc.ClickOn(120, 36, "rank")
	if after := v.order[v.table.Selected()]; after != before {
		t.Errorf("rank %d was selected, but now rank %d is", before, after)
	}
}

func TestOneRecordingIsNotARun(t *testing.T) {
	if ok, why := New().Available(&leaf.State{}); ok || !strings.Contains(why, "gmemtop replay DIR") {
		t.Errorf("one recording: available %v, %q", ok, why)
	}
	live := leaf.State{Open: leaf.Open{Step: "step 3"}}
	if ok, why := New().Available(&live); ok || strings.Contains(why, "recording") {
		t.Errorf("a job of one process: available %v, %q", ok, why)
	}
}

func BenchmarkDraw(b *testing.B) {
	s, v := viewtest.State(), New()
	s.Run = run(b, 1024, map[int]bool{700: true}, nil)
	c := canvas.New(200, 56, canvas.TrueColor, false)
	b.ReportAllocs()
	for b.Loop() {
		c.Clear()
		v.Draw(s, c)
		if len(c.String()) == 0 {
			b.Fatal("nothing was drawn")
		}
	}
}
