package managers

import (
	"slices"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/replay"
	"github.com/gmemtop/gmemtop/tui/leaf"
)

// came is a manager's result: its footprint in bytes and its overhead.
func came(name string, footprint int64, overhead float64) []result {
	r := replay.Result{Info: plan.Info{Name: name}, Plan: &plan.Plan{}, Available: true, Fits: true}
	r.Overhead = overhead
	r.Measurement = plan.Measurement{Footprint: footprint, StepTime: int64(1e6 * (1 + overhead))}
	return []result{{Result: r}}
}

func names(k *ranking) (list []string) {
	for i := range k.rows {
		list = append(list, k.rows[i].m.Info.Name)
	}
	return list
}

func TestARankingPutsTheBestFirstAndChoosesIt(t *testing.T) {
	on, p := some() // of caching, swap, swift and re-run, which does not serve
	on.toggleAll()
	on[3].on = false
	k := newRanking()
	q := question{&setup{p: p}, 900}
	a := &answers{by: map[string][]result{}}
	k.refresh(q, a, on, nil)
	if k.winner.manager >= 0 || k.rows[3].why == "" || k.rows[0].why != "" {
		t.Errorf("with no answer %d is the answer, and the reasons are %q", k.winner.manager, k.rows[3].why)
	}
	a.by = map[string][]result{
		"caching": came("caching", 800, 0.5),
		"swap":    came("swap", 700, 0.2),
		"swift":   came("swift", 750, 0.1),
	}
	k.refresh(q, a, on, nil)
	if got := names(&k); !slices.Equal(got, []string{"caching", "swift", "swap", "re-run"}) {
		t.Errorf("the order is %v", got)
	}
	if k.winner.manager != 2 || k.chosen != k.winner || k.current().m != &on[2] {
		t.Errorf("%v is the answer, %v is chosen", k.winner, k.chosen)
	}
	on[2].on = false
	if k.refresh(q, a, on, nil); k.winner.manager != 1 || k.chosen != k.winner {
		t.Errorf("without it %v is the answer, %v is chosen", k.winner, k.chosen)
	}
}

// Beside plans that PyTorch can run today, one that only an ideal executor could run says so and comes after
// them, whether or not its manager has another one for PyTorch.
func TestARankingTellsPlansInTheoryFromThoseOfToday(t *testing.T) {
	on, p := some()
	on.toggleAll()
	moving := func(name string, footprint int64, by ...plan.Executor) (list []result) {
		for _, e := range by {
			r := came(name, footprint, 0)[0]
			r.Executor, r.Plan = e, &plan.Plan{Absences: []plan.Absence{{}}}
			list = append(list, r)
		}
		return list
	}
	k := newRanking()
	a := &answers{by: map[string][]result{
		"caching": came("caching", 850, 0),
		"swap":    moving("swap", 800, plan.Ideal, plan.TorchEager),
		"swift":   moving("swift", 700, plan.Ideal),
	}}
	k.refresh(question{&setup{p: p}, 900}, a, on, nil)
	var labels []string
	for i := range k.rows[:4] {
		labels = append(labels, k.rows[i].label())
	}
	if want := []string{"caching", "swap", "swift in theory", "swap in theory"}; !slices.Equal(labels, want) {
		t.Errorf("the rows are %q, not %q", labels, want)
	}
	if k.winner != k.rows[1].key() {
		t.Errorf("%v is the answer", k.winner)
	}
	var marks []rune
	for i := range k.rows[:4] {
		marks = append(marks, k.rows[i].mark)
	}
	if string(marks) != "•1••" { // "swift in theory" holds less than any
		t.Errorf("the marks are %q: the first digit belongs to a plan that PyTorch can run", string(marks))
	}
	k = newRanking()
	delete(a.by, "swap")
	if k.refresh(question{&setup{p: p}, 900}, a, on, nil); slices.ContainsFunc(k.rows, func(r row) bool {
		return r.m.Info.Name == "swift" && r.label() != "swift"
	}) {
		t.Error("where nothing is for PyTorch, there is nothing to tell apart")
	}
}

func TestARankingKeepsWhatTheUserChose(t *testing.T) {
	on, p := some()
	k := newRanking()
	q := question{&setup{p: p}, 900}
	a := &answers{by: map[string][]result{"caching": came("caching", 800, 0.5)}}
	k.refresh(q, a, on, nil)
	k.choose(rowKey{manager: 0})
	a.by["swift"] = came("swift", 700, 0)
	if k.refresh(q, a, on, nil); k.winner.manager != 2 || k.chosen.manager != 0 || k.current().m != &on[0] {
		t.Errorf("%v is the answer, %v is chosen", k.winner, k.chosen)
	}
}

func TestARankingShowsTheLatestUntilThereIsAnAnswer(t *testing.T) {
	on, p := some()
	k := newRanking()
	st := &setup{p: p}
	k.refresh(question{st, 900}, &answers{by: map[string][]result{"swift": came("swift", 700, 0)}}, on, nil)
	k.refresh(question{st, 800}, &answers{by: map[string][]result{}}, on, nil)
	for i := range k.rows {
		if r := &k.rows[i]; r.m == &on[2] && (!r.stale || r.planned() || r.result == nil) {
			t.Errorf("an answer to another budget stands as %v", r)
		}
	}
	if k.winner.manager >= 0 {
		t.Error("it is taken for the answer")
	}
}

func TestARankingSortsByWhatOthersKnow(t *testing.T) {
	on, p := some()
	on[1].on = true
	k := newRanking()
	a := &answers{by: map[string][]result{"swap": came("swap", 750, 0.2), "swift": came("swift", 700, 0.1)}}
	k.table.SortBy, k.table.Descending = colBatch, true
	k.refresh(question{&setup{p: p}, 900}, a, on, func(r *row, col int) (float64, bool) {
		return float64(r.result.Measurement.Footprint), col == colBatch
	})
	if got := names(&k); !slices.Equal(got, []string{"swap", "swift", "caching", "re-run"}) {
		t.Errorf("the order is %v", got)
	}
}

func TestOnlyRowsOfTheFrontierHaveDigits(t *testing.T) {
	on, p := some()
	on.toggleAll()
	k := newRanking()
	a := &answers{by: map[string][]result{
		"caching": came("caching", 800, 0),
		"swap":    came("swap", 700, 0.2),
		"swift":   came("swift", 750, 0.1),
	}}
	k.refresh(question{&setup{p: p}, 900}, a, on, nil)
	marks := func() string {
		var text []string
		for i := range k.rows {
			text = append(text, k.rows[i].m.Info.Name+" "+string(k.rows[i].mark))
		}
		slices.Sort(text)
		return strings.Join(text, ", ")
	}
	if got, want := marks(), "caching 3, re-run •, swap 1, swift 2"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	a.by["swift"] = came("swift", 750, 0.2) // as slow as swap, which takes less
	k.refresh(question{&setup{p: p}, 900}, a, on, nil)
	if got, want := marks(), "caching 2, re-run •, swap 1, swift •"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestWhatPyTorchCanRunComesBeforeWhatAnIdealExecutorCould(t *testing.T) {
	on, p := some()
	k := newRanking()
	both := append(came("swift", 700, 0), came("swift", 750, 0.1)...)
	for i := range both {
		both[i].Plan = &plan.Plan{Absences: make([]plan.Absence, 1)}
	}
	both[1].Executor = plan.TorchEager
	k.refresh(question{&setup{p: p}, 900}, &answers{by: map[string][]result{"swift": both}}, on, nil)
	if want := (rowKey{2, plan.TorchEager}); k.winner != want || k.rows[0].key() != want {
		t.Errorf("%v is the answer and %v the first row", k.winner, k.rows[0].key())
	}
	both[1].Fits = false
	k.refresh(question{&setup{p: p}, 720}, &answers{by: map[string][]result{"swift": both}}, on, nil)
	if want := (rowKey{2, plan.Ideal}); k.winner != want || k.rows[0].key() != want {
		t.Errorf("where it does not fit, %v is the answer and %v the first row", k.winner, k.rows[0].key())
	}
}

// At 80 columns names are whole beside the bars; a column of stalls is there only if a plan stalls.
func TestNamesAreWholeOnANarrowScreen(t *testing.T) {
	on, p := some()
	on.toggleAll()
	k := newRanking()
	long := "a-planner-of-long-name"
	on[1].Info.Name = long
	a := &answers{by: map[string][]result{"caching": came("caching", 850, 0), long: came(long, 800, 0)}}
	q := question{&setup{p: p}, 900}
	k.refresh(q, a, on, nil)
	x := sheet{ranking: &k, State: &leaf.State{}, q: q}
	shown := func() (whole, bars, stalls bool) {
		x.headings()
		cols := k.table.Columns
		return cols[colName].Width > len(long), !cols[colBar].Hidden, !cols[colStall].Hidden
	}
	if whole, bars, stalls := shown(); !whole || !bars || stalls {
		t.Errorf("whole names %v, bars %v, stalls %v", whole, bars, stalls)
	}
	a.by[long][0].Measurement.Stall, a.by["caching"][0].Measurement.Stall = 1000, 1000
	k.refresh(q, a, on, nil)
	if _, _, stalls := shown(); stalls != q.setup.canMove() {
		t.Errorf("stalls are shown: %v; buffers can move: %v", stalls, q.setup.canMove())
	}
}
