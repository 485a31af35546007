// Command programs carries plans out in programs that people run, and writes docs/programs.md:
//
//	go run ./scripts/programs -python PYTHON [-packages DIR] [-sources DIR] [-results DIR] \
//		[-only NAME,...] [-plan-only] > docs/programs.md
//
// Each program is a library's own code, with a model built from a configuration, and made-up data; a script
// in cases only builds it. It trains on a CPU, and gmemtop compare --target live: carries plans out in it
// meanwhile. Then the same program trains without gmemtop: after each step both must have bit-identical
// weights. That takes minutes; with -plan-only a step of each program is only described and planned for,
// which takes seconds. Results are kept in the folder of results: an interrupted run continues where it was;
// remove a program's file to measure it again. -table only writes the page again.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gmemtop/gmemtop/scripts/internal/trial"
)

// cases is the folder of the scripts that build programs.
const cases = "scripts/programs/cases"

// kept is the folder of the results that docs/programs.md shows.
const kept = "scripts/programs/results"

// Managers of each family. Those that choose addresses are compared by themselves.
const (
	moving  = "autoswap,sqrt,joint" // unless others are asked for
	pooling = "smartpool"
)

type options struct {
	python, packages, sources, results, only, gmemtop, budget, hardware, managers string

	limit    time.Duration
	table    bool
	planOnly bool // only make plans, without carrying them out
	unpooled bool // nothing that chooses addresses is tried
}

func main() {
	var o options
	flag.StringVar(&o.python, "python", os.Getenv("GMEMTOP_TORCH"), "a Python with torch")
	flag.StringVar(&o.packages, "packages", "", "a folder with transformers, timm, ...")
	flag.StringVar(&o.sources, "sources", "",
		"a folder with checkouts: pytorch/examples as examples, nanoGPT")
	flag.StringVar(&o.results, "results", kept, "the folder that results are kept in")
	flag.StringVar(&o.only, "only", "", "the programs to run, separated by commas (default all)")
	flag.StringVar(&o.gmemtop, "gmemtop", "", "the gmemtop to ask (default: it is built)")
	flag.StringVar(&o.budget, "budget", "70%", "as compare --budget")
	flag.StringVar(&o.hardware, "hardware", "scripts/programs/thread.json",
		"what copies cost, as compare --hardware; where it is empty, that is measured in each program")
	flag.StringVar(&o.managers, "managers", moving,
		"the managers that move or recompute; with others nothing that chooses addresses is tried")
	flag.DurationVar(&o.limit, "limit", 10*time.Minute,
		"the most time for a program with gmemtop, and without")
	flag.BoolVar(&o.table, "table", false, "run nothing: write the page from what is kept")
	flag.BoolVar(&o.planOnly, "plan-only", false, "make plans, and carry none out")
	flag.Parse()
	o.unpooled = o.managers != moving
	if err := o.run(context.Background(), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "programs:", err)
		os.Exit(1)
	}
}

func (o *options) run(ctx context.Context, w io.Writer) error {
	if !o.table {
		if err := o.measure(ctx); err != nil {
			return err
		}
	}
	return o.write(w)
}

// result is the result for a program.
type result struct {
	// Missing names what the program needs and this machine lacks.
	Missing string `json:"missing,omitempty"`
	// Failed says why nothing was found.
	Failed string `json:"failed,omitempty"`

	Ran     int              `json:"ran"`     // steps while plans came and went
	Steps   int              `json:"steps"`   // of these, compared with a run without gmemtop
	Differs int              `json:"differs"` // the first step with other weights, 0 for none
	Moving  trial.Comparison `json:"moving"`  // of what swaps and recomputes
	Pooling trial.Comparison `json:"pooling"` // of what chooses addresses
}

func (o *options) path(p *program) string { return filepath.Join(o.results, p.name+".json") }

// planPath is where is kept what -plan-only finds.
func (o *options) planPath(p *program) string { return filepath.Join(o.results, p.name+".plan.json") }

func (o *options) measure(ctx context.Context) error {
	if o.python == "" {
		return errors.New("name a Python with torch: -python or GMEMTOP_TORCH")
	}
	if err := os.MkdirAll(o.results, 0o777); err != nil {
		return err
	}
	if o.planOnly {
		return o.eachOf(o.planPath, func(p *program) found {
			l := o.look(ctx, p)
			return found{what: l, missing: l.Missing, said: l.Refused + l.Failed + l.Unplanned}
		})
	}
	if o.gmemtop == "" {
		dir, err := os.MkdirTemp("", "programs-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		if o.gmemtop, err = trial.Build(ctx, dir); err != nil {
			return err
		}
	}
	return o.eachOf(o.path, func(p *program) found {
		r := o.try(ctx, p)
		return found{what: r, missing: r.Missing, said: r.Failed}
	})
}

// found is the result of a program, and the line to print while others are still running.
type found struct {
	what          any
	missing, said string
}

// eachOf runs f on each wanted program that has no kept result, and keeps its result.
func (o *options) eachOf(path func(*program) string, f func(*program) found) error {
	for i := range programs {
		p := &programs[i]
		if o.only != "" && !slices.Contains(strings.Split(o.only, ","), p.name) {
			continue
		}
		if _, err := os.Stat(path(p)); err == nil {
			continue
		}
		began := time.Now()
		r := f(p)
		fmt.Fprintf(os.Stderr, "%s: %s, in %v\n", p.name, cmp.Or(r.missing+r.said, "done"),
			time.Since(began).Round(time.Second))
		if r.missing != "" {
			continue
		}
		if err := keep(path(p), r.what); err != nil {
			return err
		}
	}
	return nil
}

// keep writes a result to a file.
func keep(path string, what any) error {
	text, err := json.MarshalIndent(what, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, text, 0o666)
}

// try carries plans out in a program and compares what it learns.
func (o *options) try(ctx context.Context, p *program) (r result) {
	var err error
	if r.Missing, err = o.missing(ctx, p); err != nil || r.Missing != "" {
		r.failed(err)
		return r
	}
	watched, err := o.planned(ctx, p, &r)
	if err == nil {
		err = o.same(ctx, p, watched, &r)
	}
	r.failed(err)
	return r
}

func (r *result) failed(err error) {
	if err != nil {
		r.Failed = err.Error()
	}
}

// planned runs a program while plans come and go, and returns the lines of its steps.
func (o *options) planned(ctx context.Context, p *program, r *result) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, o.limit)
	defer cancel()
	t, err := o.start(ctx, p)
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, o.late(err)
	case err != nil:
		return nil, err
	}
	defer t.End()
	if err := t.Await(ctx, 2); ctx.Err() != nil {
		return nil, o.late(err)
	} else if err != nil {
		return nil, err
	}
	budget, err := o.budgetFor(ctx, p, t.PID())
	if err != nil {
		return nil, err
	}
	for _, c := range []struct {
		managers string
		to       *trial.Comparison
	}{{cmp.Or(o.managers, moving), &r.Moving}, {pooling, &r.Pooling}} {
		if c.managers == pooling && o.unpooled {
			continue
		}
		flags := []string{"--iterations", "3", "--managers", c.managers}
		if c.managers != pooling { // pooling does not lower what is alive
			flags = append(flags, "--budget", budget)
		}
		if o.hardware != "" {
			flags = append(flags, "--hardware", o.hardware)
		}
		text, err := trial.Compare(ctx, o.gmemtop, t, flags...)
		if refused := trial.Refused(""); errors.As(err, &refused) {
			c.to.Impossible = string(refused)
			continue
		}
		if ctx.Err() != nil && len(r.Moving.Results) > 0 { // keep the results of the others
			c.to.Impossible = fmt.Sprintf("there was no time left for it in %v", o.limit)
			return t.Steps(), nil
		}
		if ctx.Err() != nil {
			return nil, o.late(err)
		}
		if err != nil {
			return nil, err
		}
		if err := json.Unmarshal(text, c.to); err != nil {
			return nil, fmt.Errorf("read what gmemtop compare said: %w", err)
		}
	}
	return t.Steps(), nil
}

// budgetFor returns the budget of a program, as compare --budget: what an earlier look at it found, or a look
// at the process of that number, which is kept. Where neither knows, and where only some managers are tried,
// it is the share that was asked for.
func (o *options) budgetFor(ctx context.Context, p *program, pid int) (string, error) {
	l, err := o.lookedAt(p)
	if err != nil {
		return "", err
	}
	if l == nil && o.unpooled {
		return o.budget, nil
	}
	if l == nil {
		share, err := o.share()
		if err != nil {
			return o.budget, nil // a size, such as 8GiB
		}
		l = &looked{}
		if err := l.plan(ctx, pid, share, o.hardware); err != nil {
			if ctx.Err() != nil {
				return "", fmt.Errorf("no step was described and planned within %v of its start", o.limit)
			}
			return "", err
		}
		if err := keep(o.planPath(p), l); err != nil {
			return "", err
		}
	}
	if l.Budget <= 0 {
		return o.budget, nil
	}
	return strconv.FormatInt(l.Budget, 10), nil
}

// late says what gmemtop was doing when the time for a program was over.
func (o *options) late(err error) error {
	doing := "waiting for the program"
	if err != nil {
		said := strings.Split(strings.TrimSpace(err.Error()), "\n")
		_, last, _ := strings.Cut(said[len(said)-1], "gmemtop: ")
		doing = cmp.Or(last, doing)
	}
	return fmt.Errorf("no plan was carried out within %v, after which gmemtop was still %s", o.limit, doing)
}

// same runs a program without gmemtop for as many steps, or those that there is time for, and compares them.
func (o *options) same(ctx context.Context, p *program, watched []string, r *result) error {
	ctx, cancel := context.WithTimeout(ctx, o.limit)
	defer cancel()
	t, err := o.start(ctx, p)
	if err != nil {
		return err
	}
	defer t.End()
	if err := t.Await(ctx, len(watched)); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("without gmemtop: %w", err)
	}
	r.Ran = len(watched)
	for i, line := range t.Steps()[:min(len(watched), len(t.Steps()))] {
		r.Steps++
		if line != watched[i] {
			r.Differs = i + 1
			break
		}
	}
	return nil
}

func (o *options) start(ctx context.Context, p *program) (*trial.Training, error) {
	args := []string{filepath.Join(cases, "observe.py")}
	for _, a := range p.args {
		args = append(args, strings.NewReplacer("SOURCES", o.sources, "PACKAGES", o.packages).Replace(a))
	}
	c := exec.CommandContext(ctx, o.python, args...)
	c.Env = append(os.Environ(), "PYTHONPATH="+o.packages, "OMP_NUM_THREADS=1", "HF_HUB_OFFLINE=1",
		"PYTHONWARNINGS=ignore", "PYTHONDONTWRITEBYTECODE=1")
	log, err := os.Create(filepath.Join(o.results, p.name+".log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	c.Stderr = log
	return trial.Start(c)
}
