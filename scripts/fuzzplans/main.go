// Command fuzzplans makes up training programs and carries plans out in them:
//
//	go run ./scripts/fuzzplans -python PYTHON -seeds 1:50 [-beside 2] [-results DIR] [-- PROGRAM'S FLAGS]
//
// A seed gives a program (program.py), and what gmemtop does to it while it trains: it attaches, carries
// plans out, and lets go. Then the same program trains without gmemtop. What a program learns must not
// differ, it must neither end nor hang, and the agent must not fail. A line is printed for each seed, and the
// command fails if any of them did. Flags after "--" make a program smaller (program.py --help).
//
// That takes a minute a seed or more. inside.py tries worse plans on the same programs in less time, in the
// agent alone.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gmemtop/gmemtop/scripts/internal/trial"
)

const (
	observer = "scripts/programs/cases/observe.py"
	program  = "scripts/fuzzplans/program.py"

	warm    = 3 // steps before gmemtop comes
	further = 4 // steps after it has gone
	rounds  = 2 // how often gmemtop comes
)

type options struct {
	python, seeds, results string

	beside int
	limit  time.Duration // for a program with gmemtop, and without
	flags  []string      // of the program
}

func main() {
	var o options
	flag.StringVar(&o.python, "python", os.Getenv("GMEMTOP_TORCH"), "a Python with torch")
	flag.StringVar(&o.seeds, "seeds", "1:20", "the first and the last seed, or one")
	flag.StringVar(&o.results, "results", "", "a folder for the programs' output (default: a temporary one)")
	flag.IntVar(&o.beside, "beside", 2, "how many programs to run at once")
	flag.DurationVar(&o.limit, "limit", 8*time.Minute,
		"the most time for a program with gmemtop, and without")
	flag.Parse()
	o.flags = flag.Args()
	if err := o.run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "fuzzplans:", err)
		os.Exit(1)
	}
}

func (o *options) run(ctx context.Context) error {
	if o.python == "" {
		return errors.New("name a Python with torch: -python or GMEMTOP_TORCH")
	}
	first, last, err := o.span()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "fuzzplans-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if o.results == "" {
		o.results = dir
	}
	if err := os.MkdirAll(o.results, 0o777); err != nil {
		return err
	}
	var failed atomic.Int64
	var wait sync.WaitGroup
	places := make(chan struct{}, o.beside)
	for seed := first; seed <= last; seed++ {
		places <- struct{}{}
		wait.Go(func() {
			defer func() { <-places }()
			began := time.Now()
			r := o.try(ctx, seed)
			if len(r.failures) > 0 {
				failed.Add(1)
			}
			fmt.Printf("seed %d: %s (%v)\n", seed, r, time.Since(began).Round(time.Second))
		})
	}
	wait.Wait()
	if n := failed.Load(); n > 0 {
		return fmt.Errorf("%d of %d programs failed", n, last-first+1)
	}
	return nil
}

func (o *options) span() (first, last uint64, err error) {
	from, to, ok := strings.Cut(o.seeds, ":")
	if !ok {
		to = from
	}
	if first, err = strconv.ParseUint(from, 10, 64); err == nil {
		last, err = strconv.ParseUint(to, 10, 64)
	}
	if err != nil {
		return 0, 0, fmt.Errorf("-seeds is FIRST:LAST, as 1:50: %w", err)
	}
	return first, last, nil
}

// result is what happened to a program.
type result struct {
	invalid  string // the program cannot run, even without gmemtop
	steps    int
	carried  int      // plans that were carried out
	refused  []string // why there was no plan
	failures []string // what must not be
}

func (r *result) String() string {
	if r.invalid != "" {
		return "no program: " + r.invalid
	}
	s := fmt.Sprintf("%d steps, %d plans", r.steps, r.carried)
	for _, why := range r.refused {
		s += "; " + why
	}
	for _, why := range r.failures {
		s += "\n  FAILED: " + why
	}
	return s
}

func (r *result) fail(format string, args ...any) {
	r.failures = append(r.failures, fmt.Sprintf(format, args...))
}

func (o *options) try(ctx context.Context, seed uint64) *result {
	r := &result{}
	watched, ended := o.watched(ctx, seed, r)
	r.steps = len(watched)
	o.same(ctx, seed, watched, ended, r)
	return r
}

// watched runs a program while gmemtop comes and goes. It returns the lines of its steps, and whether it
// ended.
func (o *options) watched(ctx context.Context, seed uint64, r *result) (steps []string, ended bool) {
	ctx, cancel := context.WithTimeout(ctx, o.limit)
	defer cancel()
	t, err := o.start(ctx, seed, "watched")
	if err != nil {
		r.fail("start: %v", err)
		return nil, false
	}
	defer t.End()
	v := visits{draw: rand.New(rand.NewPCG(seed, 1)), t: t, r: r}
	err = t.Await(ctx, warm)
	for range rounds {
		if err != nil {
			break
		}
		if said := v.visit(ctx); said != nil && ctx.Err() == nil {
			r.says("visit: " + said.Error())
		}
		err = t.Await(ctx, len(t.Steps())+further)
	}
	if err != nil && ctx.Err() != nil {
		r.fail("hangs after step %d, or took longer than %v", len(t.Steps()), o.limit)
		return t.Steps(), false
	}
	return t.Steps(), err != nil
}

// says keeps why there was no plan, or what was odd about one.
func (r *result) says(text string) {
	if strings.Contains(text, "watching failed") {
		return // the end of the visit says it
	}
	if first, _, ok := strings.Cut(text, "; at "); ok {
		text = first
	}
	r.refused = append(r.refused, text)
}

// same runs a program without gmemtop for as many steps and compares them.
func (o *options) same(ctx context.Context, seed uint64, watched []string, ended bool, r *result) {
	ctx, cancel := context.WithTimeout(ctx, o.limit)
	defer cancel()
	n := len(watched)
	if ended {
		n++ // does it end there without gmemtop too?
	}
	t, err := o.start(ctx, seed, "alone")
	if err == nil {
		defer t.End()
		err = t.Await(ctx, n)
	}
	alone := []string{}
	if t != nil {
		alone = t.Steps()
	}
	switch {
	case err != nil && len(alone) <= len(watched) && ended:
		r.invalid, r.failures = err.Error(), nil
		return
	case err != nil:
		r.fail("without gmemtop: %v", err)
	case ended:
		r.fail("ended after %d steps, and without gmemtop it goes on", len(watched))
	}
	for i, line := range alone[:min(len(alone), len(watched))] {
		if line != watched[i] {
			r.fail("%q, and without gmemtop %q", watched[i], line)
			return
		}
	}
}

func (o *options) start(ctx context.Context, seed uint64, as string) (*trial.Training, error) {
	args := append([]string{observer, program, strconv.FormatUint(seed, 10)}, o.flags...)
	c := exec.CommandContext(ctx, o.python, args...)
	c.Env = append(os.Environ(), "OMP_NUM_THREADS=1", "PYTHONWARNINGS=ignore", "PYTHONDONTWRITEBYTECODE=1")
	log, err := os.Create(filepath.Join(o.results, fmt.Sprintf("%d.%s.log", seed, as)))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	c.Stderr = log
	return trial.Start(c)
}
