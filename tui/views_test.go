package tui

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/runs"
	"github.com/gmemtop/gmemtop/timeline/sites"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/maybe"
	"github.com/gmemtop/gmemtop/tui/leaf"
	"github.com/gmemtop/gmemtop/tui/managers/plannertest"
)

func TestThePeakViewComparesWithTheMark(t *testing.T) {
	d := start(t, Options{Loader: loaderOf(training(t, "runs/a.gmt", 128<<20))}, 120, 40)
	d.press("c", "[", "[", "}", "d")
	s := &d.m.state
	if d.m.tabs.front != leaf.Peak || !s.HasMark {
		t.Fatalf("view %c is in front", d.m.tabs.front)
	}
	more := s.Device.Allocated.At(s.Mark) - s.Device.Allocated.At(s.Cursor)
	if more != 128<<20 {
		t.Fatalf("the two peaks differ by %d", more)
	}
	d.wants("At 8.02 ms, 128 MiB less is allocated than at the mark (29.0 ms)", "-128 MiB", "since mark")
	d.press("tab")
	d.wants("by", "since mark")
	d.press("'")
	d.wants("as much is allocated as at the mark (29.0 ms), with the same bytes in every row")
	d.press("d")
	if s.HasMark || strings.Contains(d.screen(), "since mark") {
		t.Error("d again does not stop comparing")
	}
}

func TestEveryGroupingAddsUpToWhatIsAllocated(t *testing.T) {
	tl := training(t, "runs/a.gmt", 0)
	dev := tl.Main()
	for by := range sites.NumBy {
		var sum int64
		for _, g := range sites.Breakdown(dev, dev.Totals.PeakAt, by) {
			sum += g.Bytes
		}
		if sum != dev.Totals.PeakAllocated {
			t.Errorf("grouped by %s: %d of %d bytes", by, sum, dev.Totals.PeakAllocated)
		}
	}
	d := start(t, Options{Loader: loaderOf(tl), View: leaf.Peak}, 120, 40)
	for range sites.NumBy {
		d.wants("At the peak, ", " hold 384 MiB")
		d.press("tab")
	}
}

func TestARowOpensItsBlocks(t *testing.T) {
	d := start(t, Options{Loader: loaderOf(training(t, "runs/a.gmt", 0)), View: leaf.Peak}, 120, 40)
	d.press("enter")
	s := &d.m.state
	if d.m.tabs.front != leaf.Allocations || !s.Query.BySite || !s.Query.Live {
		t.Fatalf("enter shows view %c with the filter %q", d.m.tabs.front, s.QueryText)
	}
	found, err := sites.Search(context.Background(), s.Device, s.Query)
	if err != nil || len(found) == 0 {
		t.Fatalf("%d blocks, %v", len(found), err)
	}
	for _, a := range found {
		if s.Device.Allocs.Stack[a] != s.Query.Stack {
			t.Errorf("block %d is of another stack", a)
		}
	}
	d.press("1", "esc", "down", "enter")
	if d.m.tabs.front != leaf.Allocations || !strings.Contains(s.QueryText, "cat:activation") {
		t.Errorf("enter on a category shows view %c with the filter %q", d.m.tabs.front, s.QueryText)
	}
}

// many is a device with blocks far too small to be drawn, below one large one.
func many(t *testing.T) *driver {
	m := newMaker()
	for range 500 {
		m.alloc(4096, "PARAMETER", m.stack("__init__ model.py 10"))
	}
	m.alloc(1<<30, "ACTIVATION", m.stack("forward model.py 30"))
	return start(t, Options{Loader: loaderOf(m.build(t)), View: leaf.Timeline}, 120, 40)
}

func TestSmallBlocksAreMergedAndOpen(t *testing.T) {
	d := many(t)
	d.press("up", "down")
	d.wants("500 small blocks")
	for range 12 {
		d.press("enter")
		if !strings.Contains(d.screen(), "500 small blocks") {
			break
		}
	}
	if d.m.tabs.front == leaf.Timeline && strings.Contains(d.screen(), "500 small blocks") {
		t.Errorf("enter does not open them:\n%s", d.screen())
	}
	d = many(t)
	d.press("up", "down", "a")
	if d.m.tabs.front != leaf.Allocations {
		t.Errorf("a shows view %c", d.m.tabs.front)
	}
	d.wants("500 of 501")
}

// The source's own total may far exceed the recorded blocks, as in a profile that began in
// the middle of a training.
func TestUnrecordedBytesAreNotABlock(t *testing.T) {
	m := newMaker()
	first := m.alloc(16<<20, "ACTIVATION", m.stack("forward model.py 30"))
	m.b.T.Counters = append(m.b.T.Counters, traces.Counter{Name: m.b.String(traces.CounterAllocated),
		Device: m.dev, Time: []int64{m.now}, Value: []int64{80 << 20}})
	m.alloc(8<<20, "ACTIVATION", m.stack("forward model.py 31"))
	m.free(first)
	d := start(t, Options{Loader: loaderOf(m.build(t)), View: leaf.Timeline}, 120, 40)
	d.wants("2 blocks hold 24.0 MiB at the peak, and 64.0 MiB are not in the recording; the largest is "+
		"16.0 MiB of activation, from", "64.0 MiB  ░ not in the recording")
	d.press("down") // the largest block, although what is not recorded is larger
	if s := &d.m.state; s.Selected == timeline.NoAlloc || s.Device.Allocs.Size[s.Selected] != 16<<20 {
		t.Errorf("down selects block %d", s.Selected)
	}
	d.press("down", "down")
	if s := &d.m.state; s.Selected == timeline.NoAlloc {
		t.Error("down selects something that is not in the recording")
	}
	d.press("1")
	d.wants("▪ not in the recording ")
}

func TestUpAndDownMoveThroughTheBandsAtTheCursor(t *testing.T) {
	d := start(t, Options{Loader: loaderOf(training(t, "runs/a.gmt", 0)), View: leaf.Timeline}, 120, 40)
	s := &d.m.state
	seen := map[timeline.AllocID]bool{}
	d.press("up")
	for range 20 {
		d.press("down")
	}
	for range 20 {
		seen[s.Selected] = true
		d.press("up")
	}
	if live := s.Device.LiveAt(s.Cursor, nil); len(seen) != len(live) {
		t.Errorf("only %d of the %d live blocks can be reached", len(seen), len(live))
	}
}

func TestTheEquationOfReservedBytesAddsUp(t *testing.T) {
	tl := training(t, "runs/a.gmt", 0)
	dev := tl.Main()
	st, err := timeline.StateAt(context.Background(), dev, dev.Totals.PeakAt)
	if err != nil || !st.Known {
		t.Fatalf("the state is not known: %v", err)
	}
	if sum := st.ActiveRequested + st.Internal + st.Stranded + st.Cached; sum != st.Reserved {
		t.Errorf("the parts add up to %d, reserved is %d", sum, st.Reserved)
	}
	d := start(t, Options{Loader: loaderOf(tl)}, 120, 40)
	d.wants("allocated 384 + fragmented 64.0 = reserved 448 MiB")
}

func TestEmptyViewsSayHowToFillThem(t *testing.T) {
	for name, tl := range map[string]*timeline.Timeline{"empty": empty(t), "moment": moment(t),
		"lossy": lossy(t)} {
		d := start(t, Options{Loader: loaderOf(tl)}, 120, 40)
		for _, v := range d.m.tabs.views {
			d.press(string(rune(v.ID())))
			if ok, why := v.Available(&d.m.state); !ok {
				if len(why) < 20 {
					t.Errorf("help for %s of %s is only %q", v.Name(), name, why)
				}
				d.wants("has nothing to show")
			}
		}
	}
}

func TestThePeakSaysWhereTheChosenRowComesFrom(t *testing.T) {
	d := start(t, Options{Loader: loaderOf(training(t, "runs/a.gmt", 0)), View: leaf.Peak}, 120, 40)
	d.wants("its largest block", "88.0 MiB block 0x7f0011800000")
	d.press("down")
	d.wants("80.0 MiB block 0x7f")
	d.press("2", "down", "3")
	if d.m.state.Selected == timeline.NoAlloc {
		t.Fatal("no block is selected")
	}
	d.wants("selected ──")
}

func TestOneMomentIsNotCalledAPeak(t *testing.T) {
	d := start(t, Options{Loader: loaderOf(moment(t))}, 120, 40)
	for _, v := range d.m.tabs.views {
		d.press(string(rune(v.ID())))
		for _, wrong := range []string{"at the peak", "At the peak", "within the recording"} {
			if strings.Contains(d.screen(), wrong) {
				t.Errorf("%s calls a single moment %q:\n%s", v.Name(), wrong, d.screen())
			}
		}
	}
}

func TestAViewWithNothingToShowHintsOnlyAtWhatWorksThere(t *testing.T) {
	d := start(t, Options{Loader: loaderOf(training(t, "runs/a.gmt", 0))}, 120, 40)
	d.press("9")
	d.wants("has nothing to show", "e export", ": more", "? help")
	lines := strings.Split(strings.TrimRight(d.screen(), "\n"), "\n")
	for _, hint := range []string{"p peak", "+− zoom", "[ ] iteration", "/ search", "c mark"} {
		if last := lines[len(lines)-1]; strings.Contains(last, hint) {
			t.Errorf("the key %q does nothing there: %s", hint, last)
		}
	}
}

func TestARunOfRanksOpensWithThem(t *testing.T) {
	run := runs.Build([]runs.RankSummary{{Rank: maybe.Known(0), Path: "r0.gmt"},
		{Rank: maybe.Known(1), Path: "r1.gmt"}})
	opened := ""
	d := start(t, Options{
		Loader: func(context.Context, func(string, int64, int64)) (Loaded, error) {
			return Loaded{Run: run}, nil
		},
		Open: func(path string) Loader {
			opened = path
			return loaderOf(training(t, path, 0))
		},
	}, 120, 40)
	if d.m.tabs.front != leaf.Ranks {
		t.Fatalf("view %c is in front", d.m.tabs.front)
	}
	d.send(leaf.OpenRankMsg{Path: "r1.gmt"})
	if opened != "r1.gmt" || d.m.state.Device == nil || d.m.tabs.front != leaf.Overview {
		t.Fatalf("opened %q, view %c", opened, d.m.tabs.front)
	}
	d.send(leaf.OpenRankMsg{Path: "r0.gmt"})
	d.press("w")
	d.wants("r0.gmt", "r1.gmt", "rank 0", "rank 1")
	if n := len(d.m.state.Timelines); n != 2 {
		t.Errorf("%d timelines are open", n)
	}
}

func TestManagersAreOneKeyAwayFromEveryView(t *testing.T) {
	d := start(t, Options{Loader: loaderOf(training(t, "runs/a.gmt", 0)), Planner: &plannertest.Planner{}},
		120, 40)
	for _, v := range d.m.tabs.views {
		d.press(string(rune(v.ID())), "m")
		if d.m.tabs.front != leaf.Managers {
			t.Fatalf("from %s, m goes to view %c", v.Name(), d.m.tabs.front)
		}
	}
	d.wants("To fit in", "the fastest is ours", "budget", "step time over memory")
	d.press("1")
	d.click("m Managers")
	d.wants("To fit in")
	d.press("b", "ctrl+u")
	d.typeText("12 apples")
	d.wants("is not a size")
	d.press("enter", "ctrl+u")
	d.typeText("50%")
	d.press("enter")
	d.wants("50 % of the step's peak")
}

func TestWritingAPlanAsksBeforeReplacingAnother(t *testing.T) {
	t.Chdir(t.TempDir())
	d := start(t, Options{Loader: loaderOf(training(t, "runs/a.gmt", 0)), Planner: &plannertest.Planner{},
		View: leaf.Managers}, 120, 40)
	d.press("W")
	d.wants("write the plan of ours to a.ours.plan.json")
	d.press("enter")
	d.wants("wrote a.ours.plan.json")
	first, err := os.ReadFile("a.ours.plan.json")
	if err != nil || !strings.Contains(string(first), `"manager"`) {
		t.Fatalf("%v: %.80s", err, first)
	}
	d.press("g", "W", "ctrl+u")
	d.typeText("a.ours.plan.json")
	d.press("enter")
	d.wants("a.ours.plan.json exists", "keep it")
	d.press("enter")
	if again, _ := os.ReadFile("a.ours.plan.json"); string(again) != string(first) {
		t.Error("the file was replaced unasked")
	}
	d.press("W", "ctrl+u")
	d.typeText("a.ours.plan.json")
	d.press("enter", "down", "enter")
	if again, _ := os.ReadFile("a.ours.plan.json"); string(again) == string(first) {
		t.Error("it was not replaced although the user chose that")
	}
}

func TestTwoPlansAreShownSideBySide(t *testing.T) {
	d := start(t, Options{Loader: loaderOf(training(t, "runs/a.gmt", 0)), Planner: &plannertest.Planner{},
		View: leaf.Managers}, 120, 40)
	d.press("d")
	d.wants("Compare with ours", "caching", "packed")
	d.typeText("packed")
	d.press("enter")
	d.wants("ours against packed", "less memory", "▸ ours", "compute", "on the host")
	d.press("tab")
	d.wants("▸ packed")
	d.press("esc")
	d.wants("the fastest is ours")
}

func TestAnAddressFindsTheBlocksThatHeldIt(t *testing.T) {
	d := start(t, Options{Loader: loaderOf(training(t, "runs/a.gmt", 0)), View: leaf.Allocations}, 80, 24)
	d.press("/")
	for _, line := range strings.Split(d.screen(), "\n") {
		if strings.Contains(line, "filter /") && strings.Contains(line, "…") {
			t.Errorf("the help is cut: %s", line)
		}
	}
	s := &d.m.state
	a := s.Device.LiveAt(s.Device.Totals.PeakAt, nil)[1]
	d.typeText(fmt.Sprintf("0x%x", s.Device.Allocs.Addr[a]+5000))
	d.press("enter")
	if !slices.Contains(d.m.filter.found.blocks, a) || len(d.m.filter.found.blocks) > 20 {
		t.Errorf("%d blocks held the address; the selected one is among them: %v",
			len(d.m.filter.found.blocks), slices.Contains(d.m.filter.found.blocks, a))
	}
}
