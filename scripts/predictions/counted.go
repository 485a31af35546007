package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/gmemtop/gmemtop/scripts/internal/trial"
	"github.com/gmemtop/gmemtop/traces/stats"
)

// kept is one comparison, and what PyTorch counted while gmemtop made it.
type kept struct {
	trial.Comparison
	Counted []stretch `json:"counted"`
	Without stretch   `json:"counted_without"` // before the first plan
}

// stretch is a run of steps under one plan, by PyTorch's own figures.
type stretch struct {
	Plan     int64 `json:"plan"`         // its number, 0 for none
	Peak     int64 `json:"peak_bytes"`   // the most that was allocated in one of the steps
	StepTime int64 `json:"step_time_ns"` // the median
	Steps    int   `json:"steps"`        // all that ran, of which only some count
}

// warm and timed are how many steps gmemtop lets pass under a plan and how many it times. The same steps
// count here.
const warm, timed = 3, 3

type step struct{ plan, peak, took int64 }

// readSteps reads what counted.py wrote. The last line may be cut: the training was killed.
func readSteps(r io.Reader) ([]step, error) {
	text, err := io.ReadAll(r)
	if err != nil {
		return nil, err
	}
	var steps []step
	for line := range strings.Lines(string(text)) {
		if !strings.HasSuffix(line, "\n") {
			break
		}
		var s step
		if _, err := fmt.Sscanf(line, "%d %d %d\n", &s.plan, &s.peak, &s.took); err != nil {
			return nil, fmt.Errorf("line %d, %q, is no step: %w", len(steps)+1, line, err)
		}
		steps = append(steps, s)
	}
	return steps, nil
}

// stretches returns one for each plan that lasted for all the steps that count, in their order, and what the
// steps right before the first one took.
func stretches(steps []step) (under []stretch, without stretch) {
	for len(steps) > 0 {
		n := slices.IndexFunc(steps, func(s step) bool { return s.plan != steps[0].plan })
		if n < 0 {
			n = len(steps)
		}
		run := steps[:n]
		steps = steps[n:]
		switch {
		case run[0].plan != 0 && n >= warm+timed:
			under = append(under, sum(run, run[warm:warm+timed]))
		case run[0].plan == 0 && len(under) == 0:
			without = sum(run, run[max(0, n-timed):])
		}
	}
	return under, without
}

// sum summarises a run by the steps of it that count.
func sum(run, count []step) stretch {
	s := stretch{Plan: run[0].plan, Steps: len(run)}
	var times []int64
	for _, x := range count {
		s.Peak = max(s.Peak, x.peak)
		times = append(times, x.took)
	}
	s.StepTime = stats.Median(times)
	return s
}

// keep writes a comparison and what PyTorch counted to a file. Plans are matched by their order, so both must
// have the same number.
func keep(path string, comparison []byte, counted string) error {
	var k kept
	if err := json.Unmarshal(comparison, &k.Comparison); err != nil {
		return err
	}
	f, err := os.Open(counted)
	if err != nil {
		return err
	}
	defer f.Close()
	steps, err := readSteps(f)
	if err != nil {
		return fmt.Errorf("read what PyTorch counted: %w", err)
	}
	k.Counted, k.Without = stretches(steps)
	plans := 0
	for _, r := range k.Results {
		if r.Target == "live" && r.Available {
			plans++
		}
	}
	if plans != len(k.Counted) {
		return fmt.Errorf("%d plans were measured, and the training saw %d: run it again", plans,
			len(k.Counted))
	}
	text, err := json.MarshalIndent(k, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o666)
}
