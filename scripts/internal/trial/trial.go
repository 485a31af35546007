// Package trial starts trainings and has gmemtop carry plans out in them, for commands that write pages about
// it.
package trial

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

// Row is what gmemtop compare --json says about a manager on a target. Sizes are in bytes, times in
// nanoseconds.
type Row struct {
	Manager   string   `json:"manager"`
	Executor  string   `json:"executor"`
	Target    string   `json:"target"`
	Available bool     `json:"available"`
	Fits      bool     `json:"fits"`
	Reason    string   `json:"reason"`
	Footprint int64    `json:"footprint_bytes"`
	Predicted int64    `json:"footprint_predicted_bytes"`
	StepTime  int64    `json:"step_time_ns"`
	Overhead  float64  `json:"overhead"`
	Before    int64    `json:"keep_all_before_ns"`
	Work      *float64 `json:"work_overhead"` // in processor time; nil if not measured
	Causes    []string `json:"causes"`
}

// Comparison is what gmemtop compare --json says.
type Comparison struct {
	// Impossible says why there is no comparison: nothing can fit.
	Impossible string `json:"impossible,omitempty"`

	Problem  Problem `json:"problem"`
	Budget   int64   `json:"budget_bytes"`
	StepTime int64   `json:"keep_all_step_time_ns"`
	Results  []Row   `json:"results"`
}

// Problem is what gmemtop compare --json says about the step that it planned. Sizes are in bytes.
type Problem struct {
	Peak   int64    `json:"peak_live_bytes"`
	Reside int64    `json:"must_reside_bytes"`
	Ops    int      `json:"ops"`
	Notes  []string `json:"notes"`
}

// Build compiles gmemtop in a folder and returns its path. It runs in the root of the repository.
func Build(ctx context.Context, dir string) (string, error) {
	gmemtop := filepath.Join(dir, "gmemtop")
	build := exec.CommandContext(ctx, "go", "build", "-o", gmemtop, "./cmd/gmemtop")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build gmemtop: %w: %s", err, out)
	}
	return gmemtop, nil
}

// Training is one that runs.
type Training struct {
	cmd   *exec.Cmd
	more  chan struct{} // a step has ended
	ended chan struct{} // its output has

	mu    sync.Mutex
	steps []string
}

// Start starts a training that prints a line beginning with "step " after each of its steps. The caller must
// end it.
func Start(c *exec.Cmd) (*Training, error) {
	out, err := c.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := c.Start(); err != nil {
		return nil, fmt.Errorf("start the training: %w", err)
	}
	t := &Training{cmd: c, more: make(chan struct{}, 1), ended: make(chan struct{})}
	go t.read(out)
	return t, nil
}

func (t *Training) read(out io.Reader) {
	defer close(t.ended)
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if !strings.HasPrefix(lines.Text(), "step ") {
			continue
		}
		t.mu.Lock()
		t.steps = append(t.steps, lines.Text())
		t.mu.Unlock()
		select {
		case t.more <- struct{}{}:
		default:
		}
	}
}

// Steps returns the lines of the steps that have ended.
func (t *Training) Steps() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.steps)
}

// Await waits until this many steps have ended. One goroutine may wait at a time.
func (t *Training) Await(ctx context.Context, steps int) error {
	for len(t.Steps()) < steps {
		select {
		case <-t.more:
		case <-t.ended:
			if n := len(t.Steps()); n < steps {
				return fmt.Errorf("the training ended after %d steps", n)
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// PID returns the training's process.
func (t *Training) PID() int { return t.cmd.Process.Pid }

// End kills the training and waits for it.
func (t *Training) End() {
	t.cmd.Process.Kill() //nolint:errcheck // it may have ended by itself
	<-t.ended
	t.cmd.Wait() //nolint:errcheck // it was killed
}

// Compare runs gmemtop compare with these flags, which carries plans out in a training, and returns what it
// prints as JSON; if nothing can fit, a [Comparison] that says so. If gmemtop gives another reason, the error
// is a [Refused].
func Compare(ctx context.Context, gmemtop string, t *Training, flags ...string) ([]byte, error) {
	args := append([]string{"compare", "--target", fmt.Sprintf("live:%d", t.PID()), "--json"}, flags...)
	var text, said bytes.Buffer
	c := exec.CommandContext(ctx, gmemtop, args...)
	c.Stdout, c.Stderr = &text, &said
	err := c.Run()
	if json.Valid(text.Bytes()) {
		return text.Bytes(), nil
	}
	const impossible = "gmemtop: not possible: "
	if _, why, ok := strings.Cut(said.String(), impossible); ok {
		return json.Marshal(Comparison{Impossible: strings.TrimSpace(why)})
	}
	lines := strings.Split(strings.TrimSpace(said.String()), "\n")
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && exit.Exited() {
		return nil, Refused(strings.TrimPrefix(lines[len(lines)-1], "gmemtop: "))
	}
	return nil, fmt.Errorf("compare: %w: %s", err, said.String())
}

// Refused is the sentence with which gmemtop ended without a comparison.
type Refused string

func (r Refused) Error() string { return string(r) }
