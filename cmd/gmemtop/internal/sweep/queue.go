package sweep

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/gmemtop/gmemtop/capture/bus"
	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/planner"
	"github.com/gmemtop/gmemtop/managers/plan"
)

// On many machines, one gmemtop sweep hands out the units through a hub and keeps the results in its journal,
// as if it had planned them itself. A worker never learns a path: it has traces of its own, and a unit names
// one by the hash of its content. It computes the unit's key again from what it would plan, so a worker with
// another gmemtop, or on a node with another GPU, refuses instead of answering another question.

// about is what a worker must know before it begins.
type about struct {
	Version int      `json:"v"`
	Program string   `json:"program"`
	Device  string   `json:"device"`
	Task    question `json:"task"`
	Traces  []named  `json:"traces"`
}

// question is the part of a task that a worker is told.
type question struct {
	Margin    string `json:"margin"`
	Outside   string `json:"outside"`
	Hardware  string `json:"hardware"`
	Iteration string `json:"iteration"`
	Seed      uint64 `json:"seed"`
	Work      int64  `json:"work"`
}

// named is a trace by its content.
type named struct {
	Name string `json:"name"`
	Hash string `json:"hash"`
}

// order is a unit on its way to a worker.
type order struct {
	named
	Recorded int    `json:"recorded,omitempty"`
	Batch    int    `json:"batch,omitempty"`
	Manager  string `json:"manager"`
	Budget   string `json:"budget"`
}

// errOther means that a worker would plan something else.
var errOther = errors.New("this worker would plan something else than what is asked: use the same gmemtop " +
	"everywhere, and where nodes have different GPUs, name one with gmemtop sweep --hardware")

const (
	// outstanding is how many units wait in the hub at most.
	outstanding = 4096
	// lookEvery is how often to check the queue.
	lookEvery = 200 * time.Millisecond
	// patience is how many checks in a row may find an empty queue before the missing units are given up: a
	// result arrives a moment after its unit has left the queue.
	patience = 8
)

// hub is the hub of a queue.
type hub interface {
	Offer(ctx context.Context, id string, data []byte) error
	Results(ctx context.Context, take func(id string, data []byte)) error
	Left(ctx context.Context) (waiting, underWay int, err error)
}

// About is what the hub of a sweep tells workers.
func (s *Sweep) About() ([]byte, error) {
	if t := s.options.Task; strings.HasSuffix(t.Hardware, ".json") {
		return nil, mistake("--hardware %s: workers take no file, so name a GPU of gmemtop help hardware",
			t.Hardware)
	}
	program, err := thisProgram()
	if err != nil {
		return nil, err
	}
	t := s.options.Task
	a := about{Version: journalVersion, Program: program, Device: s.options.Device,
		Task: question{t.Margin, t.Outside, t.Hardware, t.Iteration, t.Seed, t.Work}}
	for _, t := range s.traces {
		a.Traces = append(a.Traces, named{t.name, t.hash})
	}
	return json.Marshal(a)
}

// Serve hands out the units that the journal lacks and keeps the results, until all are there. Units that
// ended their workers again and again are given up: their number is in the error.
func (s *Sweep) Serve(ctx context.Context, q hub, j *Journal, tell func(Progress)) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	r, todo := s.await(j, tell, stop)
	if len(todo) == 0 {
		return nil
	}
	tell(r.progress)
	var receiving sync.WaitGroup
	defer func() {
		stop(nil)
		receiving.Wait()
	}()
	receiving.Go(func() {
		if err := q.Results(ctx, r.take); err != nil && ctx.Err() == nil {
			stop(err)
		}
	})
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for idle := 0; ; {
		waiting, underWay, err := q.Left(ctx)
		if err != nil && ctx.Err() == nil {
			return err
		}
		for ; waiting < outstanding && len(todo) > 0 && ctx.Err() == nil; waiting++ {
			if err := s.offer(ctx, q, todo[0]); err != nil {
				return err
			}
			todo = todo[1:]
		}
		if idle++; waiting+underWay > 0 || len(todo) > 0 {
			idle = 0
		}
		if idle > patience {
			return r.givenUp()
		}
		select {
		case <-r.complete:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
}

// results keeps the results of a sweep's units as workers send them.
type results struct {
	sweep    *Sweep
	journal  *Journal
	tell     func(Progress)
	fail     func(error) // stops the sweep, if a result cannot be kept
	began    time.Time
	complete chan struct{} // closed once no unit is missing

	mu       sync.Mutex
	missing  map[string]unit // by key
	progress Progress
}

// await returns what keeps the results of the units that the journal lacks, and these units.
func (s *Sweep) await(j *Journal, tell func(Progress), fail func(error)) (r *results, todo []unit) {
	r = &results{sweep: s, journal: j, tell: tell, fail: fail, began: time.Now(),
		complete: make(chan struct{}), missing: map[string]unit{}, progress: Progress{Total: len(s.units)}}
	for _, u := range s.units {
		if _, ok := j.get(u.key); ok {
			r.progress.Before++
			continue
		}
		r.missing[u.key], todo = u, append(todo, u)
	}
	r.progress.Done = r.progress.Before
	return r, todo
}

// take keeps one unit's result. It ignores anything that is not a result of this sweep, and repeated results.
func (r *results) take(id string, data []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	u, ok := r.missing[id]
	var d Done
	if !ok || json.Unmarshal(data, &d) != nil || d.Key != id || len(d.Rows) == 0 {
		return
	}
	if err := r.journal.put(d); err != nil {
		r.fail(err)
		return
	}
	delete(r.missing, id)
	p := &r.progress
	p.Done++
	if n := p.Done - p.Before; n >= enough {
		p.Left = time.Since(r.began) / time.Duration(n) * time.Duration(p.Total-p.Done)
	}
	p.Trace, p.Manager, p.Budget = r.sweep.traces[u.trace].name, u.manager, u.budget
	r.tell(*p)
	if len(r.missing) == 0 {
		close(r.complete)
	}
}

// givenUp returns the error of a sweep whose hub has nothing left to do while units are missing.
func (r *results) givenUp() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return fmt.Errorf("%d plans were given up: each of them ended three workers, or they could not "+
		"plan it; the same command tries them again", len(r.missing))
}

func (s *Sweep) offer(ctx context.Context, q hub, u unit) error {
	t := s.traces[u.trace]
	data, err := json.Marshal(order{named{t.name, t.hash}, t.recorded, u.batch, u.manager, u.budget})
	if err != nil {
		return err
	}
	return q.Offer(ctx, u.key, data)
}

// Worker plans units that a hub hands out.
type Worker struct {
	open     func(ctx context.Context, path string) (p *plan.Problem, readErr, err error)
	sweep    *Sweep
	settings string
	paths    map[string]string // of the traces, by hash

	mu   sync.Mutex
	hash string // the trace that is open, "" for none
	read *plan.Problem
	err  error // why there is no problem
}

// NewWorker returns a worker for a sweep; the traces are at the given paths. said is the hub's description of
// the sweep. open makes the problem of a trace, for the device and the task that the sweep names.
func NewWorker(ctx context.Context, said []byte, paths []string, open func(device string,
	task planner.Task) func(ctx context.Context, path string) (p *plan.Problem, readErr, err error)) (*Worker,
	error) {
	var a about
	if err := json.Unmarshal(said, &a); err != nil || a.Version != journalVersion {
		return nil, fmt.Errorf("%w: the hub's words are not understood", errOther)
	}
	if strings.HasSuffix(a.Task.Hardware, ".json") {
		return nil, errors.New("the hub names a file of hardware, and a worker opens none")
	}
	if program, err := thisProgram(); err != nil || program != a.Program {
		return nil, errors.Join(errOther, err)
	}
	task := planner.Task{Margin: a.Task.Margin, Outside: a.Task.Outside, Hardware: a.Task.Hardware,
		Iteration: a.Task.Iteration, Seed: a.Task.Seed, Work: a.Task.Work}
	w := &Worker{open: open(a.Device, task), paths: map[string]string{},
		sweep: &Sweep{options: Options{Task: task, Device: a.Device}}}
	var err error
	if w.settings, err = w.sweep.options.settings(); err != nil {
		return nil, err
	}
	for _, path := range paths {
		hash, err := hashFile(ctx, path)
		if err != nil {
			return nil, err
		}
		w.paths[hash] = path
	}
	for _, t := range a.Traces {
		if w.paths[t.Hash] == "" {
			return nil, fmt.Errorf("this worker lacks %q: name the same traces as gmemtop sweep does", t.Name)
		}
	}
	return w, nil
}

// Do plans a unit and returns its result for the hub.
func (w *Worker) Do(ctx context.Context, id string, data []byte) ([]byte, error) {
	var o order
	if err := json.Unmarshal(data, &o); err != nil {
		return nil, fmt.Errorf("%w: %w", errOther, err)
	}
	if key(w.settings, o.Hash, fmt.Sprint(o.Recorded), fmt.Sprint(o.Batch), o.Manager, o.Budget) != id {
		return nil, errOther
	}
	recorded, failed := w.problem(ctx, o.Hash)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	t := task{unit: unit{key: id, batch: o.Batch, manager: o.Manager, budget: o.Budget}, err: failed}
	if failed == nil {
		t.problem, t.inferred, t.err = problem(recorded, o.Recorded, o.Batch)
	}
	one := &Sweep{options: w.sweep.options, traces: []trace{{name: o.Name, hash: o.Hash,
		recorded: o.Recorded}}}
	d, err := one.one(ctx, t)
	if err != nil {
		return nil, err
	}
	return json.Marshal(d)
}

// problem returns the problem of a trace. Units of one trace follow each other, so only the newest is kept.
func (w *Worker) problem(ctx context.Context, hash string) (*plan.Problem, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if hash == w.hash {
		return w.read, w.err
	}
	w.hash, w.read, w.err = "", nil, nil
	runtime.GC() // of two large traces the older one must go first
	path := w.paths[hash]
	if path == "" {
		return nil, errOther
	}
	read, readErr, err := w.open(ctx, path)
	if read == nil && err == nil {
		err = readErr
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if now, hashErr := hashFile(ctx, path); hashErr != nil || now != hash {
		return nil, errors.Join(errMoved, hashErr)
	}
	w.hash, w.read, w.err = hash, read, err
	return read, err
}

var _ hub = (*bus.Work)(nil)
