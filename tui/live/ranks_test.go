package live

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	tea "charm.land/bubbletea/v2"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/runs"
	"github.com/gmemtop/gmemtop/traces/maybe"
	"github.com/gmemtop/gmemtop/tui/leaf"
)

// ranked turns a look into a job of n ranks: rank 3 takes 18 ms longer before its backward, which is where
// the others wait for it, and the last one has died.
func ranked(l Look, n int) Look {
	var peers []runs.Peer
	for i := range n {
		r := Rank{ID: i, Rank: maybe.Known(int64(i)), PID: 4242 + i, Title: "train.py",
			Device: fmt.Sprintf("cuda:%d", i%8), State: Running, Step: maybe.Known(159), Captured: 2,
			Typical: runs.Peer{Duration: maybe.Known(58e6), Forward: maybe.Known(14e6),
				Backward: maybe.Known(39e6), Optimizer: maybe.Known(5e6),
				Bytes: maybe.Known(2<<30 + int64(i)<<20)}}
		switch {
		case i == 3 || n == 2 && i == 1:
			r.Typical.Forward, r.Typical.Backward = maybe.Known(32e6), maybe.Known(21e6)
		case i == n-1 && n > 2:
			r.State, r.Word, r.Failed, r.Step = Ended, "RuntimeError: boom", true, maybe.Known(121)
		}
		p := r.Typical
		if r.State == Ended {
			p = runs.TypicalPeer(nil)
		}
		l.Ranks, peers = append(l.Ranks, r), append(peers, p)
	}
	l.Chosen, l.Peers = 1, runs.ComparePeers(peers)
	return l
}

func TestScreensOfRanks(t *testing.T) {
	for _, n := range []int{2, 8, 64} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			sc, v, _ := open(t, ranked(running(t, 160), n))
			v.Show(v.look.Windows[1].ID, false)
			sc.Text(120, 36)
			v.Take(v.look) // the second look knows the room that there is
			sc.Golden(fmt.Sprintf("ranks-%d", n))
			sc.Press("tab")
			sc.Golden(fmt.Sprintf("ranks-%d-listed", n))
		})
	}
	scripts := ranked(running(t, 160), 2)
	for i := range scripts.Ranks {
		r := &scripts.Ranks[i]
		r.Rank, r.Title, r.Device = maybe.Int{}, []string{"actor.py", "critic.py"}[i], "cpu"
	}
	sc, _, _ := open(t, scripts)
	sc.Press("tab")
	sc.Golden("ranks-scripts")
}

func TestAJobOfOneProcessIsDrawnAsBefore(t *testing.T) {
	sc, v, _ := open(t, running(t, 160))
	text := sc.Text(120, 36)
	sc.Press("tab")
	if sc.Text(120, 36) != text || v.ranks.focus || strings.Contains(text, "rank") {
		t.Errorf("a list of one\n%s", sc.Text(120, 36))
	}
}

func TestRanksAreChosenByKeyAndByMouse(t *testing.T) {
	for _, size := range [][2]int{{80, 20}, {120, 36}} {
		sc, v, f := open(t, ranked(running(t, 160), 8))
		w, h := size[0], size[1]
		sc.Text(w, h)
		sc.Press("tab")
		sc.Text(w, h)
		sc.Press("down", "enter")
		sc.Text(w, h)
		if len(f.orders) != 1 || !reflect.DeepEqual(f.orders[0], Order{Kind: Choose, Rank: 2}) {
			t.Fatalf("%dx%d: orders %+v", w, h, f.orders)
		}
		y, ok := v.ranks.table.Line(5)
		if !ok {
			t.Fatalf("%dx%d: rank 5 is not visible", w, h)
		}
		sc.Click(4, y)
		if last := f.orders[len(f.orders)-1]; !reflect.DeepEqual(last, Order{Kind: Choose, Rank: 5}) {
			t.Errorf("%dx%d: a click on rank 5 orders %+v", w, h, last)
		}
	}
}

func TestOrdersNameTheirRank(t *testing.T) {
	sc, _, _ := open(t, ranked(running(t, 160), 4))
	sc.Press("r")
	if m, ok := sc.Sent[len(sc.Sent)-1].(leaf.ToastMsg); !ok || !strings.Contains(m.Text, "rank 1") {
		t.Errorf("r says %+v", sc.Sent)
	}
	sc.Press("X")
	pick := sc.Sent[len(sc.Sent)-1].(leaf.PickMsg)
	if len(pick.Choices) != 3 || !strings.Contains(pick.Choices[0].Title, "rank 1") ||
		!strings.Contains(pick.Choices[1].Title, "all 4") {
		t.Errorf("after X the dialog offers %+v", pick.Choices)
	}
}

func TestRowUnderTheCursorStaysWhateverTheRanksDo(t *testing.T) {
	sc, v, _ := open(t, ranked(running(t, 160), 64))
	sc.Text(120, 36)
	sc.Press("tab", "down", "down", "down", "down", "down")
	at := func() string { return v.Status(sc.State) }
	before, _, _ := strings.Cut(at(), ",")
	l := ranked(running(t, 161), 64)
	l.Ranks[40].Typical.Bytes = l.Ranks[40].Typical.Bytes.Times(2)
	var peers []runs.Peer
	for _, r := range l.Ranks {
		peers = append(peers, r.Typical)
	}
	l.Peers = runs.ComparePeers(peers)
	v.Take(l)
	if after, _, _ := strings.Cut(at(), ","); after != before {
		t.Errorf("%s became %s", before, after)
	}
}

func TestClickingAColumnSelectsItsStep(t *testing.T) {
	sc, v, _ := open(t, running(t, 60))
	sc.Text(120, 36)
	sc.Send(tea.MouseClickMsg{X: 40, Y: 6, Button: tea.MouseLeft}) // what no zone takes is nobody's
	sc.Send(columnMsg{step: 7})
	if st, _ := v.look.step(v.steps.Selected()); st.Index != 7 {
		t.Errorf("step %d is selected", st.Index)
	}
	sc.Send(columnMsg{step: 3})
	if msg, ok := v.Update(sc.State, columnMsg{step: 3})().(OpenMsg); !ok || msg.Window.First != 3 {
		t.Errorf("a second click on a captured step sends %+v", msg)
	}
}

// A process that has not stepped is behind all others by its steps, and step 0 is a step.
func TestAProcessWithoutAStepSortsBeforeStepZero(t *testing.T) {
	p := newRanksPane()
	ranks := []Rank{{ID: 1, Step: maybe.Known(4)}, {ID: 2, Step: maybe.Known(0)}, {ID: 3}}
	l := &Look{Ranks: ranks, Chosen: 1}
	p.table.SortBy, p.table.Descending = rankStep, false
	p.take(l, &Look{})
	p.sort(l)
	if want := []int{2, 1, 0}; !slices.Equal(p.order, want) {
		t.Errorf("order %v, not %v", p.order, want)
	}
}

// The list says how many steps of a rank are missing, whatever else it says of it.
func TestTheListSaysHowManyStepsOfARankAreLost(t *testing.T) {
	look := ranked(running(t, 160), 8)
	for i, want := range []string{"1 step lost", "lost: nothing from node7, 12 steps lost",
		"ended: killed, 12 steps lost", ""} {
		r := &look.Ranks[i]
		*r = Rank{Lost: 12, Typical: r.Typical}
		switch i {
		case 0:
			r.Lost = 1
		case 1:
			r.Silent = "lost: nothing from node7"
		case 2:
			r.State, r.Word = Ended, "killed"
		case 3:
			r.Lost = 0
		}
		look.Peers.Differences = nil
		if text, _ := look.unlike(i, timeline.IEC); text != want {
			t.Errorf("rank %d: %q, not %q", i, text, want)
		}
	}
}

// With several machines each rank has a node, and ranks of a node that has fallen silent come first if they
// do not all fit.
func TestRanksOfSeveralMachinesHaveNodes(t *testing.T) {
	const silent = "lost: nothing from node7 for 40 s"
	look := ranked(running(t, 160), 64)
	sc, v, _ := open(t, look)
	sc.Press("tab")
	if text := sc.Text(160, 36); strings.Contains(text, "node") {
		t.Errorf("one machine has a column of nodes:\n%s", text)
	}
	for i := range look.Ranks {
		look.Ranks[i].Host = fmt.Sprint("node", i/8)
		if i/8 == 7 && look.Ranks[i].State != Ended {
			look.Ranks[i].Silent = silent
		}
	}
	sc.Press("tab")
	v.Take(look)
	sc.Text(160, 36)
	v.Take(look)
	sc.Press("tab")
	lines := strings.Split(sc.Text(160, 36), "\n")
	at := func(text string) int {
		return slices.IndexFunc(lines, func(l string) bool { return strings.Contains(l, text) })
	}
	if first, other := at(silent), at("node0 "); first < 0 || !strings.Contains(lines[first], "?  ") ||
		other >= 0 && other < first {
		t.Errorf("the silent ranks do not come first:\n%s", strings.Join(lines, "\n"))
	}
}

// The number of a rank is what one looks for: it is never cut, also beside a mark.
func TestNumbersOfRanksAreWhole(t *testing.T) {
	many := ranked(running(t, 160), 1024)
	for i := range many.Ranks {
		many.Ranks[i].Silent = "no step for 12s"
	}
	unranked := many
	unranked.Ranks = slices.Clone(many.Ranks)
	for i := range unranked.Ranks {
		unranked.Ranks[i].Rank, unranked.Ranks[i].PID = maybe.Int{}, 4_100_000+i
	}
	for last, l := range map[string]Look{"1023": many, "4101023": unranked} {
		for _, size := range [][2]int{{80, 24}, {120, 40}, {200, 60}} {
			sc, v, _ := open(t, l)
			sc.Text(size[0], size[1])
			v.ranks.focus = true
			v.ranks.table.Select(len(l.Ranks) - 1)
			if text := sc.Text(size[0], size[1]); !strings.Contains(text, last+" ") {
				t.Errorf("%dx%d cuts the rank %s:\n%s", size[0], size[1], last, text)
			}
		}
	}
}
