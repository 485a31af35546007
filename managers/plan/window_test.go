package plan

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/timeline/steps"
)

// Iterations are written as their peaks, ! behind one that differs from the steady ones, | before the first
// steady one. Asked is the iteration that the user names, -1 for none.
func TestTheIterationPlannedOnIsTheSteadyOneOfTheHighestPeak(t *testing.T) {
	for _, c := range []struct {
		iterations string
		asked      int
		want       string
	}{
		{"", -1, "-1"},
		{"", 0, "plan: there is no iteration 1; the recording has 0"},
		{"| 5 6 7", 0, "0"},
		{"9! | 5 6!", 2, "2"},
		{"| 5 6 7", 3, "plan: there is no iteration 4; the recording has 3"},
		{"| 5 7 6 9", -1, "1"},
		{"| 5 6 7 1", -1, "2"},       // the last but one counts
		{"| 5 6 6 9", -1, "1"},       // the first of equals
		{"9 8! | 5 8! 6 9", -1, "4"}, // neither warm-up nor what differs nor the last
		{"9 | 8! 5", -1, "2"},        // the last one, where no other is usual
		{"9! | 8! 7!", -1, "0"},      // all differ
		{"4 7 6 |", -1, "1"},         // none is steady
	} {
		its := &steps.Iterations{}
		for f := range strings.FieldsSeq(c.iterations) {
			if f == "|" {
				its.Steady = len(its.List)
				continue
			}
			x := steps.Iteration{Odd: strings.HasSuffix(f, "!")}
			fmt.Sscan(strings.TrimSuffix(f, "!"), &x.PeakAllocated)
			its.List = append(its.List, x)
		}
		i, err := chooseIteration(its, c.asked)
		got := fmt.Sprint(i)
		if err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%q, asked for %d: %s, not %s", c.iterations, c.asked, got, c.want)
		}
	}
}
