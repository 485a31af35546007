package whatif

import (
	"testing"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/timelinetest"
)

// A loop of the user's in a loss repeats itself, and is no step: a step runs the model.
func TestPeriodIsAStepAndNoLoopBesideTheModel(t *testing.T) {
	const head = "gpu 0\n" +
		"stack fwd forward model.py:10 < _call_impl /lib/torch/nn/modules/module.py:1 < main train.py:5\n" +
		"stack a erode loss.py:2 < skeleton loss.py:9 < main train.py:6\n" +
		"stack b opened loss.py:3 < skeleton loss.py:9 < main train.py:6\n" +
		"seg 0x7f0000000000 2g\n"
	for name, c := range map[string]struct {
		trace string
		want  int
	}{
		"a loop in a loss": {head + "+ t 16m fwd\nrepeat 20\n+ a$i 16m a\n+ b$i 16m b\nend\n" +
			"oom 16m 1m a\n", 0},
		"steps": {head + "repeat 6\n+ t 16m fwd\nrepeat 4\n+ a 16m a\n- a\n+ b 16m b\n- b\nend\n" +
			"- t\nend\n+ t 16m fwd\noom 16m 1m a\n", 9},
	} {
		t.Run(name, func(t *testing.T) {
			d := timelinetest.Script(t, c.trace).Main()
			if got := period(d, timeline.Moment(d.Len()-1)); got != c.want {
				t.Errorf("the process was at the same point %d requests before, want %d", got, c.want)
			}
		})
	}
}
