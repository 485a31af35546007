package live

import (
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/steps"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

// Steps that are captured, that only try a plan, or that run under one say nothing about the others.
func TestAStepTakesAsLongAsOthersOfItsKind(t *testing.T) {
	l := Look{Title: "gpt2.py", State: Running, Report: steps.Report{Duration: 400e6},
		Windows: []Window{{First: 1, Last: 2}}}
	add := func(n int, s Step, ms int64) {
		for range n {
			s.Index, s.Duration = int64(len(l.Steps)), maybe.Known(ms*1e6)
			l.Steps = append(l.Steps, s)
		}
	}
	says := func(want string) {
		t.Helper()
		if got := l.sentence(timeline.IEC); !strings.Contains(got, want) {
			t.Errorf("%q does not say %q", got, want)
		}
	}
	if l.Usual() != 0 {
		t.Errorf("before a step the usual time is %d", l.Usual())
	}
	add(1, Step{}, 300)
	add(2, Step{}, 900) // captured
	add(2, Step{}, 300)
	says("step 4, 300 ms a step")
	add(9, Step{Trial: true}, 700)
	add(9, Step{UnderPlan: true}, 350)
	says("step 22 under a plan, 350 ms a step")
	if l.Usual() != 300e6 {
		t.Errorf("without a plan the usual time is %d", l.Usual())
	}
}
