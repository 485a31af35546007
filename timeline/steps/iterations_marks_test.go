package steps_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/timeline/steps"
	"github.com/gmemtop/gmemtop/timeline/timelinetest"
	"github.com/gmemtop/gmemtop/traces"
)

// marked is a recording of n allocations, one each 10 ns from 10 ns on, with annotations: "start end name"
// each, - for an unknown bound; "! start end name" is the source's own mark of an iteration.
func marked(t *testing.T, n int, marks string) *traces.Trace {
	t.Helper()
	b := traces.NewBuilder()
	d := b.Device(traces.DeviceGPU, 0)
	for i := range n {
		b.Event(traces.Event{Time: int64(i+1) * 10, Device: d, Action: traces.Alloc, Addr: uint64(i+1) << 20,
			Size: 512, Stack: traces.NoStack})
	}
	for one := range strings.SplitSeq(marks, ", ") {
		m := traces.Mark{Kind: traces.MarkAnnotation, Device: d}
		f := strings.Fields(one)
		if f[0] == "!" {
			m.Kind, f = traces.MarkIteration, f[1:]
		}
		for i, at := range []*int64{&m.Start, &m.End} {
			*at = traces.NoTime
			if v, err := strconv.ParseInt(f[i], 10, 64); err == nil {
				*at = v
			} else if f[i] != "-" {
				t.Fatal(err)
			}
		}
		m.Name = b.String(strings.Join(f[2:], " "))
		b.T.Marks = append(b.T.Marks, m)
	}
	return b.Finish()
}

// TestStepsAreTheMarksThatNameThem lists marks and the steps that follow from them, as their events.
func TestStepsAreTheMarksThatNameThem(t *testing.T) {
	for _, c := range []struct{ why, marks, want string }{
		{"the source's own", "! 5 25 a, 5 15 step#1, 15 25 step#2, ! 25 45 b", "a 1 [0,2) b 2 [2,4)"},
		{"a step's name", "0 15 step#1, 15 35 step#2, 35 45 step#3",
			"step#1 [0,1) step#2 [1,3) step#3 [3,4)"},
		{"the better of two names", "0 45 step#1, 45 65 step#2, 5 25 train_step, 25 65 train_step, 0 9 x",
			"train_step 1 [0,2) train_step 2 [2,6)"},
		{"a name that occurs once is no step", "0 15 train_step, 5 25 step#1, 25 45 step#2",
			"step#1 [0,2) step#2 [2,4)"},
		{"the more frequent name", "5 15 a:step, 5 15 b:step, 15 25 b:step, 15 65 a:step, 25 65 b:step",
			"b:step 1 [0,1) b:step 2 [1,2) b:step 3 [2,6)"},
		{"the first name of two as frequent", "5 15 b:step, 15 65 b:step, 5 25 a:step, 25 65 a:step",
			"a:step 1 [0,2) a:step 2 [2,6)"},
		{"a word of its own", "5 15 astep, 15 65 astep, 5 25 zstep, 25 65 zstep, 5 35 [2]iter, 35 65 [2]iter",
			"[2]iter 1 [0,3) [2]iter 2 [3,6)"},
		{"a word after a sign", "5 25 train~step, 25 65 train~step", "train~step 1 [0,2) train~step 2 [2,6)"},
		{"the optimizer's and the scheduler's steps are none",
			"5 15 Optimizer.step#SGD.step, 15 35 Optimizer.step#SGD.step, 35 65 Optimizer.step#SGD.step, " +
				"5 15 scheduler.step, 15 65 scheduler.step", "none"},
		{"any name that follows itself, for less than four fifths of the time",
			"5 15 batch, 20 30 batch, 35 45 batch, 52 55 batch", "none"},
		{"what the compiler times of its own work",
			"5 15 tune (dynamo_timed), 15 25 tune (dynamo_timed), 25 45 tune (dynamo_timed)", "none"},
		{"exactly four fifths", "5 15 batch, 17 27 batch, 33 45 batch",
			"batch 1 [0,1) batch 2 [1,2) batch 3 [3,4)"},
		{"two ranges are not enough", "5 25 batch, 25 45 batch", "none"},
		{"the most ranges", "5 15 b, 15 25 b, 25 45 b, 5 25 a, 25 35 a, 35 45 a, " +
			"5 12 c, 12 16 c, 16 30 c, 30 45 c", "c 1 [0,1) c 2 [1,1) c 3 [1,2) c 4 [2,4)"},
		{"the first name of two with as many ranges", "5 15 b, 15 25 b, 25 45 b, 5 25 a, 25 35 a, 35 45 a",
			"a 1 [0,2) a 2 [2,3) a 3 [3,4)"},
		{"nested", "5 45 step, 15 25 step, 45 65 step", "step 1 [0,4) step 2 [4,6)"},
		{"no ends", "5 - step, 25 - step, 45 - step", "step 1 [0,2) step 2 [2,4) step 3 [4,6)"},
		{"no starts", "- 25 step, - 45 step, - 65 step", "step 1 [0,2) step 2 [2,4) step 3 [4,6)"},
		{"before and after the recording", "-40 5 step, 5 25 step, 25 65 step, 65 90 step, 90 95 step",
			"step 1 [0,2) step 2 [2,6)"},
		{"no end, and the next has no start", "5 - step, - 45 step", "step 1 [0,6)"},
	} {
		t.Run(c.why, func(t *testing.T) {
			got := "none"
			it := steps.Of(timelinetest.Built(t, marked(t, 6, c.marks)))
			if it.Source == steps.FromAnnotations {
				got = ""
				for _, x := range it.List {
					got += fmt.Sprintf(" %s [%d,%d)", x.Name, x.First, x.End)
				}
			}
			if got = strings.TrimSpace(got); got != c.want {
				t.Errorf("%s\nare the steps %s\n   and not %s", c.marks, got, c.want)
			}
		})
	}
}
