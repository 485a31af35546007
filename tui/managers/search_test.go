package managers

import (
	"context"
	"errors"
	"testing"

	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/managers/plan/plantest"
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/tui/leaf"
	"github.com/gmemtop/gmemtop/tui/theme"
)

// finds answers a search by itself.
type finds func(names []string, recorded []Recorded, tell func(BatchNews)) error

func (f finds) MaxBatch(
	_ context.Context, recorded []Recorded, _ Goal, names []string, _ int64, tell func(BatchNews),
) error {
	return f(names, recorded, tell)
}

func finding(f finds) search { return search{with: f, found: map[question]*batches{}} }

// searched runs a search to its end and returns its last message to others.
func searched(t *testing.T, x *search, q question, msg goalMsg) any {
	t.Helper()
	cmd := x.begin(q, msg, []string{"caching", "ours"}, func(context.Context) (*plan.Problem, error) {
		return plantest.Chain(8, 1<<20, 1e6), nil
	})
	for cmd != nil {
		said := cmd()
		next, ok := x.take(said)
		if !ok {
			return said
		}
		cmd = next
	}
	return nil
}

func TestASearchKeepsItsAnswersByTheirQuestion(t *testing.T) {
	q := question{&setup{p: plantest.Chain(4, 1<<20, 1e6)}, 8 << 20}
	var sizes []int
	x := finding(func(names []string, recorded []Recorded, tell func(BatchNews)) error {
		for _, r := range recorded {
			sizes = append(sizes, r.Batch, r.Sequence)
		}
		tell(BatchNews{Manager: names[0], Trying: 3})
		for i, name := range names {
			tell(BatchNews{Manager: name, Largest: 10 * (i + 1), Done: true, Inferred: i > 0})
		}
		return nil
	})
	msg := goalMsg{[]extent{{8, 512}, {8, 1024}}, Goal{Longest: true, At: 8}}
	if said := searched(t, &x, q, msg); said != nil {
		t.Errorf("it says %v", said)
	}
	if len(sizes) != 4 || sizes[1] != 512 || sizes[3] != 1024 || x.sizes != "8x512,8x1024" || x.running() {
		t.Errorf("the sizes are %v and %q", sizes, x.sizes)
	}
	want := "The longest sequence at batch 8 in 8.00 MiB: ~20 tokens, with ours; 10 with caching."
	if got := x.text(timeline.IEC, q, "caching"); got != want || x.title(q) != "length" {
		t.Errorf("it says %q under %q", got, x.title(q))
	}
	ours := &row{m: called("ours"), of: plan.Ideal}
	if n, ok := x.of(q, ours); !ok || n != 20 || x.cell(theme.Dark(), q, ours).Text != "~20" {
		t.Errorf("the row's is %d, %v", n, ok)
	}
	other := question{q.setup, 1 << 20}
	if _, ok := x.of(other, ours); ok || x.text(timeline.IEC, other, "") != "" || x.title(other) != "" {
		t.Error("another budget is answered")
	}
	x.keep(q.setup)
	if len(x.found) != 1 {
		t.Error("its answer is forgotten")
	}
	if x.keep(nil); len(x.found) != 0 {
		t.Error("an answer to what is not planned for is kept")
	}
}

func TestASearchThatFailsSaysWhyAndLeavesNothing(t *testing.T) {
	q := question{&setup{p: plantest.Chain(4, 1<<20, 1e6)}, 8 << 20}
	x := finding(func([]string, []Recorded, func(BatchNews)) error {
		return errors.New("the recordings differ")
	})
	toast, _ := searched(t, &x, q, goalMsg{sizes: []extent{{batch: 8}}}).(leaf.ToastMsg)
	if toast.Text != "the largest batch: the recordings differ" || !toast.Error || len(x.found) != 0 {
		t.Errorf("it says %v and keeps %v", toast, x.found)
	}
	q.budget = 0
	if searched(t, &x, q, goalMsg{sizes: []extent{{batch: 8}}}) != nil || len(x.found) != 0 {
		t.Error("without a budget it searches")
	}
}

func TestASearchThatIsStoppedIsNotHeard(t *testing.T) {
	q := question{&setup{p: plantest.Chain(4, 1<<20, 1e6)}, 8 << 20}
	x := finding(func(names []string, _ []Recorded, tell func(BatchNews)) error {
		tell(BatchNews{Manager: names[0], Largest: 7, Done: true})
		return nil
	})
	cmd := x.begin(q, goalMsg{sizes: []extent{{batch: 8}}}, []string{"caching"}, nil)
	if !x.running() {
		t.Fatal("it does not run")
	}
	x.stop()
	x.take(cmd())
	if _, ok := x.of(q, &row{m: called("caching")}); ok || x.running() {
		t.Error("it goes on")
	}
}
