package sweep

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gmemtop/gmemtop/capture/bus"
	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/planner"
	"github.com/gmemtop/gmemtop/managers/plan"
)

// joinPause is how often a worker looks for the join file, which another machine writes and removes: a
// network file system tells nobody about that.
const joinPause = time.Second

// WorkerOptions say what a worker needs.
type WorkerOptions struct {
	// JoinFile is the file that the sweep writes.
	JoinFile string
	// Traces are the paths of the sweep's traces here.
	Traces []string
	// Jobs is how many plans to make at once.
	Jobs int
	// Wait is how long to wait for a sweep that no longer answers. If Soon is set, that is also how long to
	// wait for one that has not begun, which otherwise takes as long as it takes.
	Wait time.Duration
	Soon bool
	// Open returns what makes the problem of a trace, for the device and the task that the sweep names.
	Open func(device string, task planner.Task) func(ctx context.Context, path string) (p *plan.Problem,
		readErr, err error)
	// Waiting is called if the sweep has not begun.
	Waiting func()
}

// Worker makes the plans of a sweep on another machine.
type Worker struct {
	options WorkerOptions
	join    bus.Join
	made    atomic.Int64
}

// Made is how many plans it has made.
func (w *Worker) Made() int64 { return w.made.Load() }

// Await waits for the join file of a sweep.
func Await(ctx context.Context, o WorkerOptions) (*Worker, error) {
	told := false
	for late := time.Now().Add(o.Wait); ; {
		j, err := bus.ReadJoin(o.JoinFile)
		switch {
		case !errors.Is(err, fs.ErrNotExist):
			return &Worker{options: o, join: j}, err
		case o.Soon && time.Now().After(late):
			return nil, fmt.Errorf("no sweep has begun within %s: gmemtop sweep --serve --join-file %s "+
				"writes that file", o.Wait, o.JoinFile)
		case !told:
			told = true
			o.Waiting()
		}
		if pause(ctx); ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
}

// Work makes plans until the join file is gone, which means that the sweep has all. If another sweep takes
// the place of the first one, it goes on with that.
func (w *Worker) Work(ctx context.Context) (err error) {
	for ; err == nil; w.join, err = bus.ReadJoin(w.options.JoinFile) {
		if err := w.work(ctx); err != nil || ctx.Err() != nil {
			return err
		}
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// work makes plans for the sweep of the join file, until the file is gone or another's.
func (w *Worker) work(ctx context.Context) error {
	o := &w.options
	host, _ := os.Hostname()
	conn, err := bus.Dial(ctx, bus.Access{Join: w.join, Role: bus.Worker, Patient: true,
		Name: fmt.Sprintf("worker %s:%d", host, os.Getpid())})
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var left sync.WaitGroup
	defer left.Wait()
	defer stop(nil)
	left.Go(func() { stop(w.over(ctx, conn)) })
	asking, enough := context.WithTimeout(ctx, o.Wait)
	defer enough()
	said, err := conn.AboutWork(asking)
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return fmt.Errorf("the sweep of %s does not answer: %w", o.JoinFile, err)
	}
	m, err := newMaker(ctx, said, o.Traces, o.Open)
	if err != nil {
		return err
	}
	var jobs sync.WaitGroup
	for range o.Jobs {
		jobs.Go(func() {
			if err := w.plan(ctx, conn, m); err != nil {
				stop(err)
			}
		})
	}
	jobs.Wait()
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// over waits until the sweep of the join file is over, or has not answered for too long: then it returns an
// error.
func (w *Worker) over(ctx context.Context, conn *bus.Conn) error {
	o := &w.options
	for heard := time.Now(); ctx.Err() == nil; pause(ctx) {
		if conn.Connected() {
			heard = time.Now()
		} else if time.Since(heard) > o.Wait {
			return fmt.Errorf("the sweep of %s has not answered for %s: start it again, and then this worker",
				o.JoinFile, o.Wait)
		}
		if j, err := bus.ReadJoin(o.JoinFile); err != nil || j.Certificate != w.join.Certificate {
			return nil
		}
	}
	return nil
}

// plan makes plans until ctx is done.
func (w *Worker) plan(ctx context.Context, conn *bus.Conn, m *maker) error {
	for ctx.Err() == nil {
		switch err := conn.Take(ctx, m.do); {
		case err == nil:
			w.made.Add(1)
		case ctx.Err() != nil, errors.Is(err, bus.ErrNoWork):
		case !conn.Connected(): // it comes back, or the join file goes
			pause(ctx)
		default:
			return err
		}
	}
	return nil
}

// pause lasts joinPause, or until ctx is done.
func pause(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-time.After(joinPause):
	}
}

// maker makes the plans of units that a hub hands out.
type maker struct {
	open     func(ctx context.Context, path string) (p *plan.Problem, readErr, err error)
	sweep    *Sweep
	settings string
	paths    map[string]string // of the traces, by hash

	mu   sync.Mutex
	hash string // the trace that is open, "" for none
	read *plan.Problem
	err  error // why there is no problem
}

// newMaker returns what makes the plans of a sweep; the traces are at the given paths. said is the hub's
// description of the sweep. open makes the problem of a trace, for the device and the task that the sweep
// names.
func newMaker(ctx context.Context, said []byte, paths []string, open func(device string,
	task planner.Task) func(ctx context.Context, path string) (p *plan.Problem, readErr, err error)) (*maker,
	error) {
	var a about
	if err := json.Unmarshal(said, &a); err != nil || a.Version != journalVersion {
		return nil, fmt.Errorf("%w: it does not understand the hub's message", errOther)
	}
	if strings.HasSuffix(a.Task.Hardware, ".json") {
		return nil, errors.New("the hub names a file of hardware, and a worker opens none")
	}
	if program, err := thisProgram(); err != nil || program != a.Program {
		return nil, errors.Join(errOther, err)
	}
	task := planner.Task{Margin: a.Task.Margin, Outside: a.Task.Outside, Hardware: a.Task.Hardware,
		Iteration: a.Task.Iteration, Seed: a.Task.Seed, Work: a.Task.Work}
	w := &maker{open: open(a.Device, task), paths: map[string]string{},
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

// do plans a unit and returns its result for the hub.
func (w *maker) do(ctx context.Context, id string, data []byte) ([]byte, error) {
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
func (w *maker) problem(ctx context.Context, hash string) (*plan.Problem, error) {
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
