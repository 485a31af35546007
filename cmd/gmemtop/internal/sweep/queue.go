package sweep

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/gmemtop/gmemtop/capture/bus"
	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/exit"
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
var errOther = errors.New("this worker would make a different plan than the one asked for: use the " +
	"same gmemtop everywhere, and where nodes have different GPUs, name one with gmemtop sweep --hardware")

const (
	// outstanding is how many units wait in the hub at most.
	outstanding = 4096
	// lookEvery is how often to check the queue: a hub tells nobody that it has room again.
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

// about is what the hub of a sweep tells workers.
func (s *Sweep) about() ([]byte, error) {
	if t := s.options.Task; strings.HasSuffix(t.Hardware, ".json") {
		return nil, exit.Mistakef("--hardware %s: workers take no file, so name a GPU of gmemtop help "+
			"hardware",
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

// ServeOptions say how a sweep is handed out.
type ServeOptions struct {
	// Listen is the address at which workers on other machines reach the sweep, "" for none.
	Listen string
	// JoinFile is written for workers. It is removed when all plans are there: then they leave. Otherwise
	// they wait until the sweep goes on.
	JoinFile string
	// Ready is called once workers can join.
	Ready func()
	// Tell is called with how far the sweep is.
	Tell func(Progress)
}

// Serve hands out the units that the journal lacks to workers on any machines, until all are there. Units
// that ended their workers again and again are given up: their number is in the error.
func (s *Sweep) Serve(ctx context.Context, j *Journal, o ServeOptions) (err error) {
	said, err := s.about()
	if err != nil {
		return err
	}
	keys, err := bus.NewKeys(30 * 24 * time.Hour)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "gmemtop-sweep-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	h, err := bus.OpenHub(bus.HubOptions{Run: "sweep-" + s.ID, Listen: o.Listen, Keys: keys, Work: true,
		Socket: filepath.Join(dir, "sweep.sock")})
	if err != nil {
		return err
	}
	defer h.Close()
	q, err := h.Work(said)
	if err != nil {
		return err
	}
	defer q.Close()
	if err := h.Join().Write(o.JoinFile); err != nil {
		return err
	}
	defer func() {
		if err == nil {
			_ = os.Remove(o.JoinFile)
		}
	}()
	o.Ready()
	return s.handOut(ctx, q, j, o.Tell)
}

// handOut hands out the units that the journal lacks and keeps the results, until all are there. Units that
// ended their workers again and again are given up: their number is in the error.
func (s *Sweep) handOut(ctx context.Context, q hub, j *Journal, tell func(Progress)) error {
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

var _ hub = (*bus.Work)(nil)
