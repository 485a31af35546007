package acceptance

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// A checkup is a run of all checks, a trial is one of them.

// Options say what to check, and with what.
type Options struct {
	// Program is gmemtop's binary.
	Program string
	Build   Build
	// Python is an interpreter that has torch, "" for none: checks that train are skipped then.
	Python string
	// Device is the GPU to check, by CUDA's number.
	Device int
	// Environ is the environment of the programs that are run.
	Environ []string
	// Folder is where recordings and logs go. Checks that are ok there are not run again. Without one, Run
	// uses a temporary folder.
	Folder string
	// Limit is the time that all checks together may take, 0 for no limit.
	Limit time.Duration
	// Only are the checks to run, all if it is empty.
	Only []string
	// Tiny trains the smallest networks.
	Tiny bool
	// Begin is called before each check that is run and End after each check. Both may be nil.
	Begin func(Check)
	End   func(Result)
}

// ErrNoGPU is wrapped by the error of [Run] if there is no GPU to check.
var ErrNoGPU = errors.New("there is no GPU to check")

// checkup is one run of the checks.
type checkup struct {
	Options
	facts    facts
	size     size
	began    time.Time
	end      time.Time // zero for none
	token    string    // in the environment of every child
	redactor *redactor
	report   *Report
}

// trial is one run of one check.
type trial struct {
	*checkup
	check   Check
	figures []Figure
}

// add adds figures to the result.
func (t *trial) add(f ...Figure) { t.figures = append(t.figures, f...) }

// path returns the path of a file of this check.
func (t *trial) path(name string) string { return filepath.Join(t.Folder, t.check.Name+name) }

// log notes something for people who read the folder.
func (t *trial) log(format string, args ...any) {
	f, err := os.OpenFile(t.path(".log"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return
	}
	defer f.Close()
	fmt.Fprintf(f, format+"\n", args...)
}

// allow returns the time limit for something that takes a GPU at most most. The stand-in gets more, since it
// computes on processors that others use too.
func (s *checkup) allow(most time.Duration) time.Duration {
	if s.facts.gpu.StandIn {
		return 10 * most
	}
	return most
}

// remaining returns the time left for all checks, but at most most.
func (s *checkup) remaining(most time.Duration) time.Duration {
	if s.end.IsZero() {
		return most
	}
	return min(most, time.Until(s.end))
}

// facts are what is known about the GPU before the first check.
type facts struct {
	gpu     GPU
	torch   *Torch // nil if trainings cannot run
	noTorch string // why they cannot
	limit   bool   // torch says what share of the GPU a program allows itself
	free    int64  // free bytes; 0 if unknown
	visible string // CUDA_VISIBLE_DEVICES for children; "" leaves it alone
}

// skipped is the error of a check that lacks something on this machine.
type skipped struct{ reason string }

func (e skipped) Error() string { return e.reason }

func skip(format string, args ...any) error { return skipped{fmt.Sprintf(format, args...)} }

// errNoTime is the error of a check for which no time was left.
var errNoTime = errors.New("no time left: give it more with --minutes")

// Check is one check of a GPU.
type Check struct {
	Name string
	// About says what is checked, in one sentence.
	About string
	// Least is the time that must be left for the check to start.
	Least time.Duration

	needs need
	run   func(ctx context.Context, t *trial) error
}

// need is a set of things that a check needs.
type need uint8

// sizeFor chooses networks that fit the free memory. The stand-in has a card's memory but computes on a
// processor.
func (s *checkup) sizeFor() size {
	switch free := s.facts.free; {
	case s.Tiny, s.facts.gpu.StandIn, free > 0 && free < 4*gib:
		return tiny
	case free > 0 && free < 20*gib:
		return small
	}
	return full
}

// example returns the command line of an example.
func (t *trial) example(name string, more ...string) []string {
	return slices.Concat([]string{filepath.Join(t.Folder, name+".py")}, t.size.flags[name], more)
}
