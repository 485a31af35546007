package acceptance

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gmemtop/gmemtop/traces/stats"
)

// stepLine is what a training prints of one step.
type stepLine struct {
	number int
	loss   string // as it was printed: equal texts are equal losses
	ms     float64
}

var stepForm = regexp.MustCompile(`(?m)^step (\d+) loss (\S+) (\S+) ms$`)

// stepsOf reads the steps that a training printed.
func stepsOf(out []byte) []stepLine {
	var steps []stepLine
	for _, m := range stepForm.FindAllSubmatch(out, -1) {
		n, _ := strconv.Atoi(string(m[1]))
		ms, err := strconv.ParseFloat(string(m[3]), 64)
		if err == nil {
			steps = append(steps, stepLine{n, string(m[2]), ms})
		}
	}
	return steps
}

// medianOfLast returns the median time of the last steps, at most ten, in milliseconds.
func medianOfLast(steps []stepLine) float64 {
	var times []float64
	for _, s := range steps[max(0, len(steps)-10):] {
		times = append(times, s.ms)
	}
	return stats.Median(times)
}

// meanAfterWarmUp returns the mean time of all steps after the tenth, in milliseconds.
func meanAfterWarmUp(steps []stepLine) float64 {
	sum, n := 0.0, 0
	for _, s := range steps {
		if s.number > 10 {
			sum, n = sum+s.ms, n+1
		}
	}
	if n == 0 {
		return 0
	}
	return sum / float64(n)
}

// sameLosses reports whether two trainings printed the same losses to the digit.
func sameLosses(a, b []stepLine) bool {
	return len(a) > 0 && slices.EqualFunc(a, b, func(x, y stepLine) bool {
		return x.number == y.number &&
			x.loss == y.loss
	})
}

// learned is what learn.py says about a training that ended: after which step, and a digest of all
// parameters, gradients and buffers.
type learned struct {
	steps  int
	digest string
}

// learnedOf reads it from a training's output, with the peak of the last ten steps in bytes.
func learnedOf(out []byte) (l learned, peak int64, ok bool) {
	for line := range strings.Lines(string(out)) {
		f := strings.Fields(line)
		switch {
		case len(f) == 3 && f[0] == "digest":
			n, err := strconv.Atoi(f[1])
			l, ok = learned{n, f[2]}, err == nil
		case len(f) == 2 && f[0] == "peak":
			peak, _ = strconv.ParseInt(f[1], 10, 64)
		}
	}
	return l, peak, ok
}

// job is a training that runs beside gmemtop.
type job struct {
	*child
	t    *trial
	file string // what it prints
	stop string // it ends when this file is there
}

// longest is the longest that a training without an end runs, even if this process is killed.
const longest = 10 * time.Minute

// train starts learn.py in the background. It ends after step last or, if that is 0, when it is told to.
func (t *trial) train(name, example string, last int, more ...string) (*job, error) {
	j := &job{t: t, file: t.path("-" + name + ".txt"), stop: t.path("-" + name + ".stop")}
	os.Remove(j.stop)
	out, err := os.Create(j.file)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	argv := slices.Concat([]string{t.Python, "learn.py", "plain"},
		t.example(example, "--deterministic", "--steps", "1000000"), more)
	j.child, err = t.start(out, []string{"STOP=" + j.stop, "LAST=" + strconv.Itoa(last),
		"MOST=" + strconv.Itoa(int(t.allow(longest).Seconds()))}, argv...)
	return j, err
}

// printed returns what the training printed so far.
func (j *job) printed() []byte {
	b, _ := os.ReadFile(j.file)
	return b
}

// warm waits until the training has done some steps.
func (j *job) warm(ctx context.Context) error {
	err := j.t.poll(ctx, 90*time.Second, func() bool {
		return len(stepsOf(j.printed())) >= 3 ||
			!j.running()
	})
	if err == nil && !j.running() {
		return j.broke()
	}
	return err
}

// broke is the error about a training that ended by itself.
func (j *job) broke() error {
	return fmt.Errorf("the training ended too early: %s", j.t.lastSaid(0))
}

// end waits for a training that was told to end, or ends by itself, and reads what it learned.
func (j *job) end(ctx context.Context, limit time.Duration) (learned, error) {
	inner, cancel := context.WithTimeout(ctx, j.t.allow(limit))
	defer cancel()
	err := j.wait(inner)
	switch {
	case ctx.Err() != nil:
		return learned{}, errNoTime
	case err != nil:
		return learned{}, fmt.Errorf("the training did not end well: %w; %s", err, j.t.lastSaid(0))
	}
	l, _, ok := learnedOf(j.printed())
	if !ok {
		return learned{}, errors.New("the training did not print what it learned")
	}
	return l, nil
}

// tell makes the training end after its next step.
func (j *job) tell() error { return os.WriteFile(j.stop, nil, 0o600) }

// poll checks five times a second whether something has happened.
func (s *checkup) poll(ctx context.Context, limit time.Duration, done func() bool) error {
	limit = s.allow(limit)
	end := time.Now().Add(limit)
	for !done() {
		if time.Now().After(end) {
			return fmt.Errorf("nothing came within %.0f s", limit.Seconds())
		}
		select {
		case <-ctx.Done():
			return errNoTime
		case <-time.After(200 * time.Millisecond):
		}
	}
	return nil
}
