package plan

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/timeline/steps"
	"github.com/gmemtop/gmemtop/traces"
)

// Iterations are written as their peaks, with ! after one that differs from the steady ones and | before the
// first steady one. They are found by repetition or, after @, marked by a recorder of single ops.
func TestTheIterationPlannedOnIsTheSteadyOneOfTheHighestPeak(t *testing.T) {
	for _, c := range []struct {
		iterations string
		asked      int
		want       string
	}{
		{"", SteadyIteration, "-1"},
		{"", 0, "plan: there is no iteration 1; the recording has 0"},
		{"| 5 6 7", 0, "0"},
		{"9! | 5 6!", 2, "2"},
		{"| 5 6 7", 3, "plan: there is no iteration 4; the recording has 3"},
		{"| 5 7 6 9", SteadyIteration, "1"},
		{"| 5 6 7 1", SteadyIteration, "2"},       // the last but one counts
		{"| 5 6 6 9", SteadyIteration, "1"},       // the first of equals
		{"9 8! | 5 8! 6 9", SteadyIteration, "4"}, // neither warm-up nor what differs nor the last
		{"9 | 8! 5", SteadyIteration, "2"},        // the last one, where no other is usual
		{"9! | 8! 7!", SteadyIteration, "0"},      // all differ
		{"4 7 6 |", SteadyIteration, "1"},         // none is steady
		{"| 5 5", SteadyIteration, "0"},
		{"@ | 5 5", SteadyIteration, "1"}, // what the first one takes over was not recorded
		{"@ 6 5 |", SteadyIteration, "1"},
		{"@ | 5 5", 0, "0"},
		{"@ | 5 7 6 9", SteadyIteration, "1"},
		{"@ | 5", SteadyIteration, "0"},
		{"@ | 5 7 6", LastIteration, "2"},
		{"", LastIteration, "-1"},
	} {
		its, kind := &steps.Iterations{Source: steps.FromPeriodicity}, traces.Accesses
		for f := range strings.FieldsSeq(c.iterations) {
			switch f {
			case "@":
				its.Source, kind = steps.FromAnnotations, traces.Dataflow
				continue
			case "|":
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
