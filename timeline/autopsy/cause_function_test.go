package autopsy

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/timelinetest"
)

// A function that calls the model works on a batch, and a smaller batch helps. If it makes tensors of its own
// that are out of all proportion to what the model makes of that batch, they are what to make less of.
func TestAFunctionThatCallsTheModelMayMakeTooMuchItself(t *testing.T) {
	const text = `gpu 0 10g
seg 0x7f0000000000 10g
stack init __init__ /usr/lib/torch/nn/modules/linear.py:106 < __init__ train.py:4 < <module> train.py:30
stack model forward /usr/lib/torch/nn/modules/linear.py:125 < ` +
		`_call_impl /usr/lib/torch/nn/modules/module.py:1790 < update train.py:12 < <module> train.py:33
stack back _engine_run_backward /usr/lib/torch/autograd/graph.py:1113 < ` +
		`backward /usr/lib/torch/_tensor.py:623 < update train.py:16 < <module> train.py:33
stack own update train.py:14 < <module> train.py:33
+ weight 8m init
+ h %s model
+ g 8m back
- h
- g
+ h %[1]s model
+ pairs 4g own
+ more 3g own
oom 3g 1g own
snapshot
`
	for made, want := range map[string]bool{"64m": true, "1g": false} {
		d := timelinetest.Script(t, fmt.Sprintf(text, made)).Devices[0]
		a, err := Of(context.Background(), d, timeline.IEC)
		if err != nil {
			t.Fatal(err)
		}
		got := slices.ContainsFunc(a.Levers, func(l Lever) bool { return l.Name == "smaller_input" })
		if got != want {
			t.Errorf("the model makes %s: smaller_input is offered: %v, want %v\n%s", made, got, want,
				a.Sentence)
		}
	}
}
