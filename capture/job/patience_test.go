package job

import (
	"testing"
	"time"

	"github.com/gmemtop/gmemtop/capture"
)

// A job with long steps gets the time of some of them, since a plan ends only with a step.
func TestAnAgentMayTakeSomeStepsToLeave(t *testing.T) {
	steps := func(lengths ...time.Duration) (list []capture.Step) {
		var at int64
		for _, d := range lengths {
			list = append(list, capture.Step{Start: at, End: at + int64(d)})
			at += int64(d)
		}
		return list
	}
	old := make([]time.Duration, recentSteps)
	for _, c := range []struct {
		steps []capture.Step
		want  time.Duration
	}{
		{nil, patience},
		{steps(time.Millisecond), patience},
		{steps(3*time.Second, 4*time.Second, time.Second), patienceSteps * 4 * time.Second},
		{steps(append([]time.Duration{time.Minute}, old...)...), patience},
		{steps(time.Hour), patienceMost},
	} {
		if got := patienceFor(c.steps); got != c.want {
			t.Errorf("after %d steps: %v, want %v", len(c.steps), got, c.want)
		}
	}
}
