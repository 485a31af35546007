package sweep

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/exit"
	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/planner"
	"github.com/gmemtop/gmemtop/managers"
	"github.com/gmemtop/gmemtop/managers/hardware"
	"github.com/gmemtop/gmemtop/managers/networks"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/replay"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

// tracesOf writes files that stand for traces of the given contents.
func tracesOf(t *testing.T, contents ...string) []string {
	t.Helper()
	dir := t.TempDir()
	var paths []string
	for i, s := range contents {
		paths = append(paths, filepath.Join(dir, fmt.Sprintf("t%d.gmt", i)))
		if err := os.WriteFile(paths[i], []byte(s), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return paths
}

// alexnet is the problem that every file stands for; a file named after damage cannot be opened.
func alexnet(_ context.Context, path string) (p *plan.Problem, readErr, err error) {
	text, err := os.ReadFile(path)
	if err != nil || string(text) == "damage" {
		return nil, nil, errors.Join(err, errors.New("no iteration"))
	}
	h, err := hardware.ByName("titan-x")
	if err != nil {
		return nil, nil, err
	}
	n, err := networks.ByName("alexnet")
	if err != nil {
		return nil, nil, err
	}
	p, err = n.Problem(8, h, networks.Options{})
	return p, nil, err
}

func asked(paths []string) Options {
	return Options{Paths: paths, Managers: "caching,exact,vdnn-all,autoswap", Budgets: "10:100:30,1GiB",
		Batches: []int{4, 8}, Recorded: []int{8}, Task: planner.Task{Seed: 1, Hardware: "titan-x"}}
}

// ran runs a sweep with a journal until stop plans are done, and returns how many it made.
func ran(t *testing.T, o Options, journal string, stop int) (list []Done, made int) {
	t.Helper()
	s, err := New(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	j, err := OpenJournal(journal, s)
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	err = s.Run(ctx, j, RunOptions{Jobs: 2, Open: alexnet, Damaged: func(string, error) {},
		Tell: func(p Progress) {
			if made++; made == stop {
				cancel()
			}
		}})
	if stop > 0 {
		if !errors.Is(err, context.Canceled) {
			t.Fatalf("a sweep that was interrupted: %v", err)
		}
		return nil, made
	}
	if err != nil {
		t.Fatal(err)
	}
	if o.Shards == 0 {
		if list, err = s.Finished(j); err != nil {
			t.Fatal(err)
		}
	}
	return list, made
}

func table(t *testing.T, list []Done) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := WriteParquet(&b, list); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// A sweep that was interrupted again and again, and one in shards, end with the bytes of one that was not.
func TestHoweverASweepRunsItsTableIsTheSame(t *testing.T) {
	o := asked(tracesOf(t, "a", "damage", "b"))
	dir := t.TempDir()
	want, all := ran(t, o, filepath.Join(dir, "whole"), 0)
	if len(want) != 3*2*4*5 || all != len(want) {
		t.Fatalf("%d plans of %d", all, len(want))
	}
	status := map[string]int{}
	for _, d := range want {
		for _, r := range d.Rows {
			status[r.Status]++
		}
	}
	if status[unplannable] != all/3 || status[fits] == 0 || status[impossible] == 0 {
		t.Errorf("what became of the plans: %v", status)
	}
	broken, total := filepath.Join(dir, "broken"), 0
	for _, stop := range []int{1, 5, 30, 0} {
		list, made := ran(t, o, broken, stop)
		total += made
		if stop == 0 && !bytes.Equal(table(t, list), table(t, want)) {
			t.Error("a sweep that was interrupted gives another table")
		}
	}
	// A plan in work when the sweep is interrupted may be finished before it stops, but none is made twice.
	if total != all {
		t.Errorf("%d plans were made for %d", total, all)
	}
	parts := filepath.Join(dir, "parts")
	if err := os.Mkdir(parts, 0o700); err != nil {
		t.Fatal(err)
	}
	o.Shards = 7
	for o.Shard = 7; o.Shard > 0; o.Shard-- {
		ran(t, o, filepath.Join(parts, journalName(o.Shard, 7)), 0)
	}
	merged, err := Merge(parts)
	if err != nil || !bytes.Equal(table(t, merged), table(t, want)) {
		t.Errorf("merged shards give another table: %v", err)
	}
}

// Merge says which shards are missing or unfinished, and refuses those of another sweep.
func TestMergeSaysWhatIsMissing(t *testing.T) {
	o := asked(tracesOf(t, "a"))
	o.Shards = 3
	dir := t.TempDir()
	o.Shard = 1
	ran(t, o, filepath.Join(dir, "1.part"), 0)
	o.Shard = 3
	_, made := ran(t, o, filepath.Join(dir, "3.part"), 2)
	list, err := Merge(dir)
	want := fmt.Sprintf("%d of 40 plans are done; shard 3 has %d of 13; shard 2 is not there", 14+made, made)
	if err == nil || err.Error() != want || len(list) != 14+made || !errors.As(err, new(*Incomplete)) {
		t.Errorf("%d plans, %v", len(list), err)
	}
	o.Shard, o.Task.Seed = 2, 2
	ran(t, o, filepath.Join(dir, "2.part"), 0)
	if _, err := Merge(dir); err == nil || !strings.Contains(err.Error(), "different sweeps") {
		t.Errorf("shards of different sweeps: %v", err)
	}
	if _, err := Merge(t.TempDir()); err == nil || !strings.Contains(err.Error(), "no parts") {
		t.Errorf("an empty folder: %v", err)
	}
}

// A row says what a comparison of that manager at that budget says.
func TestARowIsWhatAComparisonSays(t *testing.T) {
	o := asked(tracesOf(t, "a"))
	o.Batches = nil
	list, _ := ran(t, o, filepath.Join(t.TempDir(), "j"), 0)
	p, _, err := alexnet(t.Context(), o.Paths[0])
	if err != nil {
		t.Fatal(err)
	}
	checked := 0
	for _, d := range list {
		m, err := managers.Select(d.Rows[0].Manager)
		if err != nil {
			t.Fatal(err)
		}
		made, err := replay.Compare(t.Context(), p, m, replay.Options{Seed: 1, Eager: managers.Eager,
			Budget: d.Rows[0].BudgetBytes.Or(-1)})
		if err != nil {
			if d.Rows[0].Status != impossible {
				t.Errorf("%+v: %v", d.Rows[0], err)
			}
			continue
		}
		if len(made.Results) != len(d.Rows) {
			t.Fatalf("%d rows for %d results", len(d.Rows), len(made.Results))
		}
		for i, r := range made.Results {
			x := d.Rows[i]
			if !r.Available { // the budget is below what this manager must hold, and another may go lower
				if x.Status != unavailable || x.Reason != r.Reason || x.Footprint.IsKnown() {
					t.Errorf("row %+v\nwant no plan, since %s", x, r.Reason)
				}
				continue
			}
			slower, _ := x.overhead()
			if x.Footprint != maybe.Known(r.Measurement.Footprint) ||
				x.Step != maybe.Known(r.Measurement.StepTime) ||
				slower != r.Overhead || (x.Status == fits) != r.Fits || x.Inferred ||
				x.Executor != r.Executor.String() {
				t.Errorf("row %+v\nwant %+v", x, r.Measurement)
			}
			checked++
		}
	}
	if checked < 10 {
		t.Errorf("only %d rows were compared", checked)
	}
}

// Whatever a plan depends on gives its units other keys, and the order of files does not.
func TestAKeyChangesWithTheQuestion(t *testing.T) {
	paths := tracesOf(t, "a", "b")
	o := asked(paths[:1])
	o.Budgets, o.Managers, o.Batches = "50%", "exact", nil
	keys := func(o Options) []string {
		s, err := New(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		return s.all
	}
	base := keys(o)[0]
	for name, change := range map[string]func(o *Options){
		"trace":    func(o *Options) { o.Paths = paths[1:] },
		"manager":  func(o *Options) { o.Managers = "caching" },
		"budget":   func(o *Options) { o.Budgets = "51%" },
		"batch":    func(o *Options) { o.Batches = []int{9} },
		"recorded": func(o *Options) { o.Recorded = []int{9} },
		"seed":     func(o *Options) { o.Task.Seed++ }, "work": func(o *Options) { o.Task.Work = 9 },
		"margin":    func(o *Options) { o.Task.Margin = "1MiB" },
		"outside":   func(o *Options) { o.Task.Outside = "1MiB" },
		"hardware":  func(o *Options) { o.Task.Hardware = "h100" },
		"device":    func(o *Options) { o.Device = "1" },
		"iteration": func(o *Options) { o.Task.Iteration = "3" },
	} {
		x := o
		change(&x)
		if keys(x)[0] == base {
			t.Errorf("another %s has the same key", name)
		}
	}
	if x := o; true {
		x.Paths = []string{paths[1], paths[0], paths[0]}
		if got := keys(x); len(got) != 2 || got[1] != base {
			t.Errorf("keys of three files of which two are the same: %v, not ..., %s", got, base)
		}
	}
}

func TestBudgets(t *testing.T) {
	for list, want := range map[string]string{
		"20:80:20": "20% 40% 60% 80%", "20%:81%:20%": "20% 40% 60% 80%",
		"50%, 12GiB,10:11:1": "50% 12GiB 10% 11%",
		"30:30:5":            "30%",
	} {
		if got, err := budgets(list); err != nil || strings.Join(got, " ") != want {
			t.Errorf("%s: %v, %v", list, got, err)
		}
	}
	for _, list := range []string{"", "20:80", "80:20:4", "20:80:0", "a:b:c", "1:2:3:4", "50%,", "0", "-3",
		"12 apples",
		"0:5:1", "1:1001:1", "nan%"} {
		if got, err := budgets(list); err == nil {
			t.Errorf("%q is taken: %v", list, got)
		}
	}
}

func TestAQuestionThatContradictsItselfIsRefused(t *testing.T) {
	paths := tracesOf(t, "a", "b", "c")
	for want, change := range map[string]func(o *Options){
		"--recorded-batch 8, or one": func(o *Options) { o.Recorded = nil },
		"2 sizes for 3 files":        func(o *Options) { o.Recorded = []int{8, 8} },
		"batch 0 is not between":     func(o *Options) { o.Batches = []int{0} },
		"not a regular file":         func(o *Options) { o.Paths = []string{"/dev/null"} },
		"instead of -":               func(o *Options) { o.Paths = []string{"-"} },
		"counted from 1":             func(o *Options) { o.Shard, o.Shards = 0, 4 },
		"unknown manager":            func(o *Options) { o.Managers = "best" },
		"more than 1000000":          func(o *Options) { o.Budgets, o.Batches = "1:1000:1", make100() },
	} {
		o := asked(paths)
		change(&o)
		if _, err := New(t.Context(), o); err == nil || !strings.Contains(err.Error(), want) ||
			!exit.IsMistake(err) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

func make100() (sizes []int) {
	for i := range 100 {
		sizes = append(sizes, i+1)
	}
	return sizes
}

// A front holds exactly the plans that no other beats, by the definition, pair by pair.
func TestAFrontIsWhatNoOtherBeats(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 1))
		var rows []Row
		for range r.IntN(30) {
			x := Row{Hash: "h", Status: []string{fits, fits, fits, tooLarge}[r.IntN(4)],
				Footprint: maybe.Known(int64(r.IntN(8))), Outside: maybe.Known(3),
				Batch: maybe.Known(int64(1 + r.IntN(3)))}
			if seed%2 == 0 {
				x.Step = maybe.Known(int64(1+r.IntN(8)) * 6)
			}
			rows = append(rows, x)
		}
		cost := func(x Row) float64 {
			if step, ok := x.Step.Value(); ok {
				return float64(step) / float64(x.Batch.Or(0))
			}
			return -float64(x.Batch.Or(0))
		}
		want := map[[2]float64]bool{}
		for _, a := range rows {
			beaten := a.Status != fits
			for _, b := range rows {
				m, n := b.Footprint.Or(0), a.Footprint.Or(0)
				if b.Status == fits && m <= n && cost(b) <= cost(a) && (m < n || cost(b) < cost(a)) {
					beaten = true
				}
			}
			if !beaten {
				want[[2]float64{float64(a.Footprint.Or(0) + 3), cost(a)}] = true
			}
		}
		got := map[[2]float64]bool{}
		for _, f := range fronts([]Done{{"k", rows}}) {
			for _, p := range f.Best {
				got[[2]float64{float64(p.Memory), f.cost(p)}] = true
			}
			if len(got) != len(f.Best) {
				t.Fatalf("seed %d: the same twice", seed)
			}
		}
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("seed %d: %v, want %v", seed, got, want)
		}
	}
}

// readsBack prints a table as pyarrow reads it.
const readsBack = `
import json, sys
import pyarrow.parquet as pq
table = pq.read_table(sys.argv[1])
table.validate(full=True)
print(json.dumps(table.to_pylist()))
`

// What pyarrow reads is what the journal has, cell by cell.
func TestPyarrowReadsTheTable(t *testing.T) {
	python := os.Getenv("GMEMTOP_PYTHON")
	if python == "" {
		python = "python3"
	}
	if err := exec.Command(python, "-c", "import pyarrow.parquet").Run(); err != nil {
		t.Skipf("needs the Python package %s: %s lacks it (GMEMTOP_PYTHON names another)", "pyarrow", python)
	}
	o := asked(tracesOf(t, "a", "damage"))
	list, _ := ran(t, o, filepath.Join(t.TempDir(), "j"), 0)
	path := filepath.Join(t.TempDir(), "t.parquet")
	if err := os.WriteFile(path, table(t, list), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(python, "-c", readsBack, path).Output()
	if err != nil {
		t.Fatal(err)
	}
	var got []map[string]any
	if err := json.Unmarshal(out, &got); err != nil {
		t.Fatal(err)
	}
	at := 0
	for _, d := range list {
		for i := range d.Rows {
			text, err := json.Marshal(&d.Rows[i])
			if err != nil {
				t.Fatal(err)
			}
			var want map[string]any
			if err := json.Unmarshal(text, &want); err != nil {
				t.Fatal(err)
			}
			want["unit"], want["overhead"] = d.Key, nil
			if x, ok := d.Rows[i].overhead(); ok {
				want["overhead"] = x
			}
			if at >= len(got) || !reflect.DeepEqual(got[at], want) {
				t.Fatalf("row %d: %v\nwant %v", at, got[min(at, len(got)-1)], want)
			}
			at++
		}
	}
	if at != len(got) {
		t.Errorf("%d rows, want %d", len(got), at)
	}
}
