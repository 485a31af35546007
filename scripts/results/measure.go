package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"sync"
	"time"

	"github.com/gmemtop/gmemtop/managers"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/replay"
)

// bench is one run of the command.
type bench struct {
	measurer
	files   recordings
	contest contest
	times   bool
	joined  bool // the page is made of parts, which say themselves what they lack

	// The largest ratio of home's largest batch to Capuchin's, and what home's plan costs at its paper's
	// multiple of PyTorch's, if they were measured.
	overCapuchin float64
	atPaper      atPaper
}

// newBench returns a bench that sweeps only problems whose name holds a text.
func newBench(files recordings, problems string, progress io.Writer) *bench {
	b := &bench{files: files}
	b.progress, b.began = progress, time.Now()
	b.contest = contest{measurer: &b.measurer, files: files, problems: problems}
	return b
}

// measurer plans with managers and simulates their plans.
type measurer struct{ journal }

// journal tells how far a run is, and keeps what failed.
type journal struct {
	mu       sync.Mutex
	progress io.Writer
	began    time.Time
	defects  []string
}

func (j *journal) tell(format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	fmt.Fprintf(j.progress, "%4.0fs %s\n", time.Since(j.began).Seconds(), sprintf(format, args))
}

func (j *journal) defect(what string) {
	j.tell("%s", what)
	j.mu.Lock()
	defer j.mu.Unlock()
	j.defects = append(j.defects, what)
}

// each calls f with 0 to n-1 on all processors and returns the first error by index.
func each(ctx context.Context, n int, f func(i int) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	errs := make([]error, n)
	next := make(chan int)
	var wg sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), n) {
		wg.Go(func() {
			for i := range next {
				if errs[i] = f(i); errs[i] != nil {
					cancel()
				}
			}
		})
	}
	for i := range n {
		if ctx.Err() != nil {
			break
		}
		next <- i
	}
	close(next)
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return ctx.Err()
}

// figure is the result of one manager.
type figure struct {
	manager string
	reason  string // why there is no plan, "" if there is one
	fits    bool
	plan    *plan.Plan
	replay.Result
}

// step is its step time, 0 if no plan fits.
func (f *figure) step() int64 {
	if f == nil || !f.fits {
		return 0
	}
	return f.Measurement.StepTime
}

// cell is its text in a table: the overhead, if it fits.
func (f *figure) cell() string {
	switch {
	case f == nil:
		return "–"
	case f.reason != "":
		return "–"
	case !f.fits:
		return "does not fit"
	}
	return signed(f.Overhead)
}

const seed = 1

// slow is how long a manager takes before progress mentions it.
const slow = 10 * time.Second

// measure plans with one manager and simulates its plan.
func (m *measurer) measure(ctx context.Context, p *plan.Problem, name string, budget, work int64,
	charts bool) (*figure, error) {
	if found := byName(name); found != nil {
		return m.measureManager(ctx, p, found, budget, work, charts)
	}
	return &figure{manager: name, reason: "there is no such manager"}, nil
}

// measureManager is measure of a given manager.
func (x *measurer) measureManager(ctx context.Context, p *plan.Problem, m plan.Manager, budget, work int64,
	charts bool) (*figure, error) {
	name := m.Info().Name
	f := &figure{manager: name}
	began := time.Now()
	defer func() {
		if took := time.Since(began); took > slow {
			x.tell("%s took %.0f s on %s within %s", name, took.Seconds(), p.Name, mib(budget))
		}
	}()
	c, err := replay.Compare(ctx, p, []plan.Manager{m}, replay.Options{Budget: budget, Seed: seed, Work: work,
		Parallel: 1, Targets: []replay.Target{replay.Simulated{Charts: charts}}})
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if errors.Is(err, replay.ErrTooSmall) {
		f.reason = err.Error()
		return f, nil
	}
	if err != nil {
		return nil, err
	}
	f.Result = c.Results[0]
	f.reason, f.fits, f.plan = f.Result.Reason, f.Available && f.Fits, f.Plan
	if f.Result.Defective {
		x.defect(fmt.Sprintf("%s on %s within %s: %s", name, p.Name, mib(budget), f.reason))
	}
	return f, nil
}

// byName returns a manager, nil if there is none with that name.
func byName(name string) plan.Manager {
	for _, m := range managers.All() {
		if m.Info().Name == name {
			return m
		}
	}
	return nil
}

// keepAll is the step time of keeping everything.
func keepAll(ctx context.Context, p *plan.Problem) (int64, error) {
	return replay.KeepAll(ctx, p, replay.Simulated{})
}
