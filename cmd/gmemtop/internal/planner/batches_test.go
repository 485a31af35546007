package planner

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/exit"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/replay"
)

// at returns the problem of AlexNet at a batch size.
func at(t *testing.T, size int) *plan.Problem {
	t.Helper()
	p, err := (&Task{Network: "alexnet", Hardware: "a100"}).OfNetwork(size)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestTheLargestBatchIsTheLastThatFits(t *testing.T) {
	ctx := context.Background()
	m, err := Manager("caching")
	if err != nil {
		t.Fatal(err)
	}
	budget := func(size int) int64 {
		n, err := Caching(ctx, at(t, size))
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	task := Task{Network: "alexnet", Hardware: "a100"}
	for _, b := range []int64{budget(5), budget(12)} {
		var asked []int
		n, err := largestBatch(ctx, m, task.OfNetwork, replay.Options{Budget: b},
			func(n int) { asked = append(asked, n) })
		if err != nil || budget(n) > b || budget(n+1) <= b || !slices.Contains(asked, n+1) {
			t.Errorf("in %d: %d, which takes %d, after asking %v (%v)", b, n, budget(n), asked, err)
		}
	}
	if n,
		err := largestBatch(ctx, m, task.OfNetwork, replay.Options{Budget: 1 << 20}, func(int) {}); n != 0 ||
		err != nil {
		t.Errorf("in a MiB: %d, %v", n, err)
	}
}

// A comparison's results hold the largest batches and what they are based on: one recording, or two that show
// how sizes grow.
func TestComparisonGetsLargestBatches(t *testing.T) {
	ctx := context.Background()
	m, err := Manager("caching")
	if err != nil {
		t.Fatal(err)
	}
	bound, err := Caching(ctx, at(t, 12))
	if err != nil {
		t.Fatal(err)
	}
	exact := 0
	for _, c := range []struct {
		task     Task
		more     []int // batches of the recordings after the first
		inferred bool
		note     string
	}{
		{Task{Network: "alexnet", Hardware: "a100"}, nil, false, ""},
		{Task{Batch: []int{4}}, nil, true, "~ "},
		{Task{Batch: []int{4, 8}}, []int{8}, false,
			"~ sizes and times at other batches are computed from recordings at 4, 8"},
	} {
		opt := replay.Options{Budget: bound}
		made, err := replay.Compare(ctx, at(t, 4), []plan.Manager{m}, opt)
		if err != nil {
			t.Fatal(err)
		}
		all := recordings{1 + len(c.more),
			func(i int) (*plan.Problem, error) { return at(t, c.more[i-1]), nil }}
		var told []string
		if err := c.task.largestBatches(ctx, made, []plan.Manager{m}, opt, all,
			func(s string) { told = append(told, s) }); err != nil {
			t.Fatal(err)
		}
		r := made.Results[0]
		if !r.MaxBatchKnown || r.MaxBatchInferred != c.inferred || r.MaxBatch < 5 || r.MaxBatch > 16 {
			t.Errorf("%+v: %d, known %v, inferred %v", c.task, r.MaxBatch, r.MaxBatchKnown,
				r.MaxBatchInferred)
		}
		if exact = max(exact, r.MaxBatch); !c.inferred && r.MaxBatch != exact {
			t.Errorf("two recordings say %d, the layers %d", r.MaxBatch, exact)
		}
		if !strings.HasPrefix(strings.Join(made.BatchNotes, "; "), c.note) {
			t.Errorf("%+v: notes %q", c.task, made.BatchNotes)
		}
		if len(told) < 2 || !strings.HasPrefix(told[0], "max batch: 0 of 1 managers") {
			t.Errorf("told %q", told)
		}
	}
}

func TestSizesGoWithTheRecordings(t *testing.T) {
	for _, c := range []struct {
		batch, sequence []int
		at, recordings  int
		want            string
	}{
		{[]int{8}, nil, 0, 1, ""},
		{[]int{8, 16}, nil, 0, 2, ""},
		{[]int{8, 16, 8}, []int{64, 64, 128}, 256, 3, ""},
		{[]int{8}, []int{64}, 64, 1, ""},
		{nil, nil, 0, 1, "--batch 32"},
		{[]int{8}, nil, 0, 3, "--batch 32,64,32"},
		{[]int{8}, nil, 64, 1, "--at-sequence needs the sequence length of each"},
		{[]int{8, 16, 8}, nil, 0, 3, "give 3 recordings with --sequence"},
		{[]int{8, 16}, []int{64, 64}, 128, 2, "--at-sequence needs three recordings"},
		{[]int{8, 16, 8}, []int{64, 64}, 0, 3, "--sequence gives 2 lengths for 3 files"},
	} {
		task := Task{Batch: c.batch, Sequence: c.sequence, AtSequence: c.at}
		err := task.checkSizes(c.recordings)
		if got := fmt.Sprint(err); c.want == "" && err != nil || !strings.Contains(got, c.want) ||
			err != nil && !exit.IsMistake(err) {
			t.Errorf("%+v: %v, want %q", task, err, c.want)
		}
	}
}

func TestManagerTakesExactlyOneName(t *testing.T) {
	for _, name := range []string{"none", "all", "joint,caching"} {
		if _, err := Manager(name); !exit.IsMistake(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, want := range map[string]bool{"stalloc": true, "joint": false, "none": false} {
		if Pools(name) != want {
			t.Errorf("%s only chooses addresses: %v", name, !want)
		}
	}
}
