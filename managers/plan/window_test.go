package plan

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/timeline/steps"
	"github.com/gmemtop/gmemtop/traces"
)

// Iterations are written as their peaks, ! behind one that differs from the steady ones, | before the first
// steady one. Asked is the iteration that the user names, -1 for none. They are found by what repeats, or
// where marks is set, marked by who recorded them op by op.
func TestTheIterationPlannedOnIsTheSteadyOneOfTheHighestPeak(t *testing.T) {
	for _, c := range []struct {
		iterations string
		asked      int
		want       string
		marks      bool
	}{
		{"", -1, "-1", false},
		{"", 0, "plan: there is no iteration 1; the recording has 0", false},
		{"| 5 6 7", 0, "0", false},
		{"9! | 5 6!", 2, "2", false},
		{"| 5 6 7", 3, "plan: there is no iteration 4; the recording has 3", false},
		{"| 5 7 6 9", -1, "1", false},
		{"| 5 6 7 1", -1, "2", false},       // the last but one counts
		{"| 5 6 6 9", -1, "1", false},       // the first of equals
		{"9 8! | 5 8! 6 9", -1, "4", false}, // neither warm-up nor what differs nor the last
		{"9 | 8! 5", -1, "2", false},        // the last one, where no other is usual
		{"9! | 8! 7!", -1, "0", false},      // all differ
		{"4 7 6 |", -1, "1", false},         // none is steady
		{"| 5 5", -1, "0", false},
		{"| 5 5", -1, "1", true}, // what the first one takes over was not recorded
		{"6 5 |", -1, "1", true},
		{"| 5 5", 0, "0", true},
		{"| 5 7 6 9", -1, "1", true},
		{"| 5", -1, "0", true},
	} {
		its, kind := &steps.Iterations{Source: steps.FromPeriodicity}, traces.Accesses
		if c.marks {
			its.Source, kind = steps.FromAnnotations, traces.Dataflow
		}
		for f := range strings.FieldsSeq(c.iterations) {
			if f == "|" {
				its.Steady = len(its.List)
				continue
			}
			x := steps.Iteration{Odd: strings.HasSuffix(f, "!")}
			fmt.Sscan(strings.TrimSuffix(f, "!"), &x.PeakAllocated)
			its.List = append(its.List, x)
		}
		i, err := chooseIteration(its, kind, c.asked)
		got := fmt.Sprint(i)
		if err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%q, asked for %d: %s, not %s", c.iterations, c.asked, got, c.want)
		}
	}
}
