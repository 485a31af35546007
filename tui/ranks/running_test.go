package ranks

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/runs"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/maybe"
	"github.com/gmemtop/gmemtop/tui/canvas"
	"github.com/gmemtop/gmemtop/tui/leaf"
	"github.com/gmemtop/gmemtop/tui/viewtest"
)

// group is n ranks on machines of eight. Where split, they stand in four pipeline stages of two tensor ranks.
// Rank 5 holds more than the others since step 80, rank 3 is late, and the last one has failed.
func group(n int, split bool) *runs.Group {
	list := make([]runs.GroupRank, n)
	for i := range list {
		m := &list[i]
		*m = runs.GroupRank{ID: i, Rank: maybe.Known(int64(i)), PID: 4000 + i,
			Host: fmt.Sprintf("node%d", i/8), Step: maybe.Known(120), Room: maybe.Known(80 << 30),
			Captured: 1,
			Usual: runs.Peer{Duration: maybe.Known(400e6), Forward: maybe.Known(120e6 + int64(i%7)*1e5),
				Backward: maybe.Known(240e6), Optimizer: maybe.Known(40e6),
				Bytes: maybe.Known(52<<30 + int64(i%5)<<20)},
			Entries: [...]maybe.Int{maybe.Known(6 << 30), maybe.Known(6 << 30), maybe.Known(12 << 30),
				maybe.Known(28 << 30)}}
		if split {
			stage := int64(i * 4 / n)
			m.Axes = []traces.Axis{{Name: traces.Pipeline, At: stage, Of: 4},
				{Name: traces.Data, At: int64(i) % max(int64(n/8), 1), Of: max(int64(n/8), 1)},
				{Name: traces.Tensor, At: int64(i % 2), Of: 2}}
			m.Usual.Bytes = maybe.Known(m.Usual.Bytes.Or(0) - stage<<32)
		}
	}
	if n > 8 {
		odd := &list[5]
		odd.Usual.Bytes = maybe.Known(odd.Usual.Bytes.Or(0) + 9<<30)
		odd.Entries[runs.EntryRest] = maybe.Known(37 << 30)
		odd.Growth = 20 << 20
		list[3].State = runs.State{Is: runs.Late, Word: "late: nothing from node0 for 8s"}
		list[3].Lost = 12
		list[n-1].State = runs.State{Is: runs.Failed, Word: "RuntimeError: boom"}
	}
	g := runs.NewGroup(list)
	if n == 16 { // rank 3 is late in every tenth step
		for step := range int64(64) {
			g.Skews = append(g.Skews, runs.Skew{Step: 57 + step, By: step%3*1e5 + step%10/9*42e5, Rank: 3})
		}
	}
	if g.First >= 0 {
		g.Why.Since = maybe.Known(80)
	}
	return g
}

func openRunning(t *testing.T, g *runs.Group) (*viewtest.Screen, *view) {
	t.Helper()
	v := New().(*view)
	sc := viewtest.Open(t, v)
	sc.State.Group = g
	sc.Send(leaf.ChangedMsg{})
	sc.Text(120, 36)
	return sc, v
}

func TestScreensOfATrainingThatRuns(t *testing.T) {
	for name, g := range map[string]*runs.Group{
		"running-4": group(4, false), "running-16": group(16, false), "running-64-split": group(64, true),
		"running-1024": group(1024, false), "running-1024-split": group(1024, true),
	} {
		t.Run(name, func(t *testing.T) {
			sc, _ := openRunning(t, g)
			sc.Golden(name)
		})
	}
}

// Whatever the room is, every rank is in one cell, no two cells overlap, and a click on one chooses its rank.
func TestEveryRankIsInOneCell(t *testing.T) {
	for _, n := range []int{1, 3, 8, 63, 512, 1024} {
		for _, split := range []bool{false, true} {
			sc, v := openRunning(t, group(n, split))
			for range len(rowChoices(v.now.group)) {
				for _, size := range [][2]int{{80, 20}, {120, 36}, {200, 56}, {60, 14}} {
					sc.Text(size[0], size[1])
					seen := map[int]int{}
					taken := map[[2]int]bool{}
					for _, c := range v.now.strip.cells {
						for _, i := range c.ranks {
							seen[i]++
						}
						for x := range c.at.W {
							at := [2]int{c.at.X + x, c.at.Y}
							if taken[at] || at[0] >= size[0] {
								t.Fatalf("%d ranks: two cells at %v", n, at)
							}
							taken[at] = true
						}
					}
					if by := v.now.strip.by(v.now.group); len(seen) != n {
						t.Errorf("%d ranks by %q in %v: %d are in cells", n, by, size, len(seen))
					}
					for i, k := range seen {
						if k != 1 {
							t.Fatalf("rank %d is in %d cells", i, k)
						}
					}
				}
				sc.Press("tab")
			}
		}
	}
}

func TestAClickOnACellChoosesItsRank(t *testing.T) {
	sc, v := openRunning(t, group(64, false))
	c := v.now.strip.cells[40]
	sc.Click(c.at.X, c.at.Y)
	if i := v.now.chosen(); i != c.ranks[0] {
		t.Errorf("rank %d is chosen, not %d", i, c.ranks[0])
	}
}

func TestTheRankUnderTheCursorStaysWhenANewerComparisonComes(t *testing.T) {
	sc, v := openRunning(t, group(64, false))
	sc.Press("down", "down", "down", "down")
	id := v.now.group.Ranks[v.now.chosen()].ID
	next := group(64, false)
	next.Ranks[40].Is = runs.Failed
	sc.State.Group = next
	sc.Text(120, 36)
	if got := v.now.group.Ranks[v.now.chosen()].ID; got != id {
		t.Errorf("rank %d was chosen, and now rank %d is", id, got)
	}
}

func TestTheRankWithTheMostTroubleComesFirst(t *testing.T) {
	_, v := openRunning(t, group(64, false))
	if got := v.now.order[:3]; !slices.Equal(got, []int{63, 5, 3}) {
		t.Errorf("%v", got)
	}
}

func captured(t *testing.T, sc *viewtest.Screen) []int {
	t.Helper()
	if len(sc.Sent) != 1 {
		t.Fatalf("r sent %v", sc.Sent)
	}
	m, ok := sc.Sent[0].(leaf.CaptureRanksMsg)
	if !ok {
		t.Fatalf("r sent %v", sc.Sent)
	}
	return m.IDs
}

func TestTheRowOfTheSlowestRankSaysByHowMuch(t *testing.T) {
	slow := group(4, false)
	m := slow.Ranks
	m[2].Usual.Forward, m[2].Usual.Backward = maybe.Known(220e6), maybe.Known(140e6)
	v := newRunning()
	v.take(runs.NewGroup(m))
	if text, bad := v.why(2, timeline.IEC); !strings.HasPrefix(text, "slowest by 99.") || !bad {
		t.Errorf("rank 2: %q", text)
	}
}

func TestOneKeyCapturesTheChosenRankAndATypicalOne(t *testing.T) {
	sc, v := openRunning(t, group(64, true))
	sc.Press("down") // rank 5, below the one that has failed
	if s := v.Status(sc.State); !strings.Contains(s, "r captures a step of it and of rank ") {
		t.Error(s)
	}
	sc.Press("r")
	ids := captured(t, sc)
	if len(ids) != 2 || ids[1] != 5 || ids[0] == 5 || v.now.group.Class[ids[0]] != v.now.group.Class[5] {
		t.Errorf("captures %v", ids)
	}
}

func TestMarkedRanksAreCaptured(t *testing.T) {
	sc, v := openRunning(t, group(64, false))
	sc.Press("down", "space", "space")
	if s := v.Status(sc.State); s != "r captures the same step of rank 3, rank 5" {
		t.Error(s)
	}
	sc.Press("r")
	if ids := captured(t, sc); !slices.Equal(ids, []int{3, 5}) {
		t.Errorf("captures %v", ids)
	}
	sc.Press("up", "up", "space", "space")
	if len(v.now.marks) != 0 {
		t.Errorf("marks %v", v.now.marks)
	}
}

func TestEnterShowsTheRankEverywhere(t *testing.T) {
	sc, v := openRunning(t, group(16, false))
	sc.Press("down", "enter")
	if len(sc.Sent) != 1 || sc.Sent[0] != (leaf.ShowRankMsg{ID: v.now.group.Ranks[v.now.chosen()].ID}) {
		t.Errorf("enter sent %v", sc.Sent)
	}
}

func BenchmarkDrawRunning(b *testing.B) {
	for _, split := range []bool{false, true} {
		b.Run(fmt.Sprintf("split=%v", split), func(b *testing.B) {
			s, v := viewtest.State(), New()
			s.Group = group(1024, split)
			c := canvas.New(200, 56, canvas.TrueColor, false)
			b.ReportAllocs()
			for b.Loop() {
				c.Clear()
				v.Draw(s, c)
				if len(c.String()) == 0 {
					b.Fatal("nothing was drawn")
				}
			}
		})
	}
}

// The number of a rank is never cut, also beside a mark, nor is that of a process without a rank.
func TestNumbersOfRunningRanksAreWhole(t *testing.T) {
	many, unranked := group(1024, false), group(1024, false)
	list := slices.Clone(unranked.Ranks)
	for i := range list {
		list[i].Rank, list[i].PID = maybe.Int{}, 4_100_000+i
	}
	for last, g := range map[string]*runs.Group{"1023": many, "4101023": runs.NewGroup(list)} {
		for _, size := range [][2]int{{80, 24}, {120, 40}, {200, 60}} {
			sc, _ := openRunning(t, g)
			// it failed, so it is on top
			if text := sc.Text(size[0], size[1]); !strings.Contains(text, " "+last+" ") {
				t.Errorf("%dx%d cuts the rank %s:\n%s", size[0], size[1], last, text)
			}
		}
	}
}
