package autopsy

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/timelinetest"
)

// Logits that outlive the optimizer's step are a variable's, and may be deleted before the backward pass.
// What the backward pass frees was the graph's.
func TestLogitsThatAVariableKeepsMayBeDeleted(t *testing.T) {
	const text = `gpu 0 10g
seg 0x7f0000000000 9g
stack init __init__ /usr/lib/torch/nn/modules/linear.py:106 < __init__ train.py:4 < <module> train.py:30
stack head forward /usr/lib/torch/nn/modules/linear.py:125 < ` +
		`_call_impl /usr/lib/torch/nn/modules/module.py:1790 < train train.py:12 < <module> train.py:33
stack loss cross_entropy /usr/lib/torch/nn/functional.py:3561 < train train.py:14 < <module> train.py:33
stack back _engine_run_backward /usr/lib/torch/autograd/graph.py:1113 < ` +
		`backward /usr/lib/torch/_tensor.py:623 < train train.py:16 < <module> train.py:33
stack step step /usr/lib/torch/optim/sgd.py:127 < train train.py:18 < <module> train.py:33
+ weight 256m init
+ logits 2g head
+ logp 2g loss
+ g 2g back
%s
- logp
- g
+ m 256m step
%s
+ logits2 2g head
%s
+ logp2 2g loss
oom 4g 1g back
snapshot
`
	const free = "- logits"
	for freed, c := range map[string]struct {
		lines [3]any
		want  bool
	}{
		"in the backward pass": {[3]any{free, "", ""}, false},
		"before the next step": {[3]any{"", free, ""}, false},
		"in the next step":     {[3]any{"", "", free}, true},
	} {
		d := timelinetest.Script(t, fmt.Sprintf(text, c.lines[:]...)).Devices[0]
		a, err := Of(context.Background(), d, timeline.IEC)
		if err != nil {
			t.Fatal(err)
		}
		got := slices.ContainsFunc(a.Levers, func(l Lever) bool { return l.Name == "del_outputs" })
		if got != c.want {
			t.Errorf("freed %s: del_outputs is offered: %v, want %v\n%s", freed, got, c.want, a.Sentence)
		}
	}
}
