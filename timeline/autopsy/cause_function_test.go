package autopsy

import (
	"context"
	"fmt"
	"slices"
	"strings"
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
stack own %[2]supdate train.py:14 < <module> train.py:33
+ weight 8m init
+ h %[1]s model
+ g 8m back
- h
- g
+ h %[1]s model
+ pairs 4g own
+ more 3g own
oom 3g 1g own
snapshot
`
	const by = "einsum /usr/lib/torch/functional.py:385 < "
	for made, want := range map[string]bool{"64m": true, "1g": false, "64m " + by: false} {
		made, library, _ := strings.Cut(made, " ")
		d := timelinetest.Script(t, fmt.Sprintf(text, made, library)).Devices[0]
		a, err := Of(context.Background(), d, timeline.IEC)
		if err != nil {
			t.Fatal(err)
		}
		got := slices.ContainsFunc(a.Levers, func(l Lever) bool { return l.Name == "smaller_input" })
		if got && !strings.Contains(a.Sentence, "makes 3.00 GiB at once, and the largest tensor that the "+
			"model makes of a batch is 64.0 MiB. Check the shapes that meet there: (n, 1) and (n,) give "+
			"n by n.") {
			t.Errorf("it says %s", a.Sentence)
		}
		if got != want {
			t.Errorf("the model makes %s, and by %q: smaller_input is offered: %v, want %v\n%s", made,
				library, got, want, a.Sentence)
		}
	}
}
