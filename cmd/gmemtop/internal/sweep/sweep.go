// Package sweep plans many iterations at many budgets and batch sizes with many managers.
//
//   - [New] lists the units of work, in an order that the same question always has;
//   - [Journal] is the file that finished units go to, so that nothing is planned twice;
//   - [Sweep.Run] plans the missing units on the processors of this machine;
//   - [Merge] joins the journals of shards;
//   - [WriteParquet] and [WriteText] write the rows, and which of them no other beats.
package sweep

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/build"
	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/exit"
	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/planner"
	"github.com/gmemtop/gmemtop/managers"
	"github.com/gmemtop/gmemtop/managers/batch"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/traces/load"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

// Options are the question.
type Options struct {
	// Paths are the traces.
	Paths []string
	// Managers is a list as [managers.Select] takes it.
	Managers string
	// Budgets is a list as [budgets] takes it.
	Budgets string
	// Batches are the batch sizes to plan for; empty for the recorded one. Recorded are the batch sizes that
	// the traces were recorded at: none, one for all of them, or one for each.
	Batches, Recorded []int
	// Task is everything else that a plan depends on. Its Budget and Batch are not used.
	Task planner.Task
	// Device is the value of --device.
	Device string
	// Shard is which part of the units this is, counted from 1, and Shards how many parts there are; both 0
	// for all units.
	Shard, Shards int
}

// Sweep is the units of one question.
type Sweep struct {
	options Options
	traces  []trace
	// all are the keys of all units in order, and ID is their hash, which identifies the sweep.
	all []string
	ID  string
	// units are those of this shard.
	units []unit
	// Same says which files are left out because an earlier one is the same.
	Same []string
}

// trace is a file with what its name and content say.
type trace struct {
	path, name, hash string
	recorded         int // its batch size, 0 if unknown
}

// unit is one question to one manager.
type unit struct {
	key     string
	trace   int // index
	batch   int // 0 if unknown
	manager string
	budget  string
}

// mostUnits bounds a sweep, so that a slip of the pen is an error.
const mostUnits = 1_000_000

// New lists the units of a question. It reads every file once, to know it again.
func New(ctx context.Context, o Options) (*Sweep, error) {
	budgets, err := budgets(o.Budgets)
	if err != nil {
		return nil, err
	}
	list, err := managers.Select(o.Managers)
	if err != nil {
		return nil, exit.Mistakef("%w", err)
	}
	if err := o.check(); err != nil {
		return nil, err
	}
	if n := len(o.Paths) * max(len(o.Batches), 1) * len(budgets) * len(list); n > mostUnits {
		return nil, exit.Mistakef("these are more than %d plans: ask for fewer budgets, batches or managers",
			mostUnits)
	}
	settings, err := o.settings()
	if err != nil {
		return nil, err
	}
	s := &Sweep{options: o}
	seen := map[string]bool{}
	for i, path := range o.Paths {
		t := trace{path: path, name: load.Name(path)}
		if t.hash, err = hashFile(ctx, path); err != nil {
			return nil, err
		}
		switch len(o.Recorded) {
		case 0:
		case 1:
			t.recorded = o.Recorded[0]
		default:
			t.recorded = o.Recorded[i]
		}
		for _, x := range s.traces {
			if x.hash == t.hash && x.recorded == t.recorded {
				s.Same = append(s.Same, fmt.Sprintf("%s is the same as %s and is left out", t.name, x.name))
				break
			}
		}
		s.traces = append(s.traces, t)
		sizes := o.Batches
		if len(sizes) == 0 {
			sizes = []int{t.recorded}
		}
		for _, size := range sizes {
			for _, m := range list {
				for _, budget := range budgets {
					u := unit{trace: i, batch: size, manager: m.Info().Name, budget: budget}
					u.key = key(settings, t.hash, strconv.Itoa(t.recorded), strconv.Itoa(size), u.manager,
						budget)
					if seen[u.key] { // the same file or budget twice
						continue
					}
					seen[u.key] = true
					if at := len(s.all); o.Shards == 0 || at%o.Shards == o.Shard-1 {
						s.units = append(s.units, u)
					}
					s.all = append(s.all, u.key)
				}
			}
		}
	}
	s.ID = key(s.all...)
	return s, nil
}

// check refuses what contradicts itself.
func (o *Options) check() error {
	switch n := len(o.Recorded); {
	case len(o.Paths) == 0:
		return exit.Mistakef("name the traces to plan for")
	case slices.Contains(o.Paths, "-"):
		return exit.Mistakef("a sweep reads its traces more than once, so name files instead of -")
	case len(o.Batches) > 0 && n == 0:
		return exit.Mistakef("--batch asks for other batch sizes than the recorded one: say which one " +
			"that is, --recorded-batch 8, or one for each file")
	case n > 1 && n != len(o.Paths):
		return exit.Mistakef("--recorded-batch gives %d sizes for %d files: one for all, or one for "+
			"each, in their order", n, len(o.Paths))
	case o.Shards < 0 || o.Shards > mostUnits || o.Shards > 0 && (o.Shard < 1 || o.Shard > o.Shards):
		return exit.Mistakef("--shard %d/%d: shards are counted from 1, such as 3/64", o.Shard, o.Shards)
	}
	for _, size := range slices.Concat(o.Batches, o.Recorded) {
		if size < 1 || size > batch.Limit {
			return exit.Mistakef("batch %d is not between 1 and %d", size, batch.Limit)
		}
	}
	for _, text := range []struct{ flag, value string }{{"margin", o.Task.Margin}, {"outside",
		o.Task.Outside}} {
		if _, err := planner.Bytes(text.flag, text.value); err != nil {
			return err
		}
	}
	return o.Task.Check()
}

// settings is everything that a plan depends on besides the other parts of a unit's key.
func (o *Options) settings() (string, error) {
	h, err := o.Task.ChosenHardware()
	if err != nil {
		return "", err
	}
	version, err := thisProgram()
	if err != nil {
		return "", err
	}
	b, err := json.Marshal(struct {
		Format                                      int
		Program, Device, Iteration, Margin, Outside string
		Seed                                        uint64
		Work                                        int64
		Hardware                                    plan.Hardware
		Named                                       bool // by the user; otherwise the trace's own comes first
	}{journalVersion, version, o.Device, o.Task.Iteration, o.Task.Margin, o.Task.Outside, o.Task.Seed,
		o.Task.Work, h, o.Task.Hardware != ""})
	return string(b), err
}

// thisProgram tells this build from others. Builds that no revision identifies are told apart by their bytes.
var thisProgram = sync.OnceValues(func() (string, error) {
	b := build.This()
	if b.Revision != "" && !b.Modified {
		return b.Version + " " + b.Revision, nil
	}
	path, err := os.Executable()
	if err != nil {
		return "", err
	}
	return hashFile(context.Background(), path)
})

// key is a hash of words.
func key(words ...string) string {
	h := sha256.New()
	for _, w := range words {
		fmt.Fprintf(h, "%d:%s", len(w), w)
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

func hashFile(ctx context.Context, path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && !info.Mode().IsRegular() {
		return "", exit.Mistakef("%s is not a regular file: a sweep takes trace files", path)
	}
	h := sha256.New()
	if _, err := io.Copy(h, reader{ctx, f}); err != nil {
		return "", fmt.Errorf("read %s: %w", path, err)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// reader reads until its context is done.
type reader struct {
	ctx context.Context
	r   io.Reader
}

func (r reader) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.r.Read(p)
}

// setShard chooses one of several equal parts: 3/64 is the third of 64.
func (o *Options) setShard(text string) error {
	i, n, found := strings.Cut(text, "/")
	var err1, err2 error
	o.Shard, err1 = strconv.Atoi(i)
	o.Shards, err2 = strconv.Atoi(n)
	if !found || err1 != nil || err2 != nil || o.Shard < 1 || o.Shards < o.Shard {
		return exit.Mistakef("--shard %q is not a part: write 3/64 for the third of 64", text)
	}
	return nil
}

// mostBudgets bounds a range of budgets.
const mostBudgets = 10_000

// budgets expands a list of budgets separated by commas: sizes (12GiB), shares of what a step holds at its
// peak (50%), and ranges of shares with their step (20:80:4, which is 20%, 24% and so on up to 80%).
func budgets(list string) ([]string, error) {
	var all []string
	for word := range strings.SplitSeq(list, ",") {
		word = strings.TrimSpace(word)
		parts := strings.Split(word, ":")
		if len(parts) == 1 {
			if err := checkBudget(word); err != nil {
				return nil, err
			}
			all = append(all, word)
			continue
		}
		var n [3]int
		ok := len(parts) == 3
		for i := 0; ok && i < 3; i++ {
			var err error
			n[i], err = strconv.Atoi(strings.TrimSuffix(strings.TrimSpace(parts[i]), "%"))
			ok = err == nil && n[i] > 0
		}
		switch {
		case !ok || n[1] < n[0] || n[1] > 1000:
			return nil,
				exit.Mistakef("--budgets %q is not a range: write 20:80:4 for 20%%, 24%% and so on up to "+
					"80%%",
					word)
		case (n[1]-n[0])/n[2] >= mostBudgets:
			return nil, exit.Mistakef("--budgets %q has too many steps", word)
		}
		for percent := n[0]; percent <= n[1]; percent += n[2] {
			all = append(all, strconv.Itoa(percent)+"%")
		}
	}
	return all, nil
}

// checkBudget refuses words that are no budget for any problem.
func checkBudget(word string) error {
	if word == "" {
		return exit.Mistakef("--budgets lacks a budget: write 12GiB, 50%% or 20:80:4")
	}
	_, err := (&planner.Task{Budget: word}).BudgetFor(&plan.Problem{})
	return err
}

// problem makes the problem of a trace at a batch size; inferred says that its sizes were scaled from the
// recorded one by a rule.
func problem(recorded *plan.Problem, from, to int) (p *plan.Problem, inferred bool, err error) {
	if from == to {
		return recorded, false, nil
	}
	m, err := batch.Fit(batch.Point{Batch: from, Problem: recorded})
	if err != nil {
		return nil, true, err
	}
	p, err = m.Scaled(to)
	return p, m.Inferred(), err
}

// known converts a figure for which 0 means unknown.
func known(n int) maybe.Int {
	if n == 0 {
		return maybe.Int{}
	}
	return maybe.Known(int64(n))
}

// errMoved means that a file is not the one that New read.
var errMoved = errors.New("it changed while the sweep ran: start again")
