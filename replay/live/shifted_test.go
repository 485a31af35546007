package live

import (
	"slices"
	"testing"

	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/traces"
)

// Where a step evaluates with gradients on, the n-th op of a module is another one than in a step that does
// not: such ops do not run again in a plan for both. With gradients off it is the same one.
func TestWhatAnEvaluationCountsBeforeATrainingStepDoesNotRunAgain(t *testing.T) {
	for _, c := range []struct{ evaluates, noGrad, again bool }{{false, false, true}, {true, false, false},
		{true, true, true}} {
		evaluates, again := c.evaluates, c.again
		tr := recording(t, triedCosts)
		if evaluates { // the first op of the second step saves nothing
			second := tr.Marks[len(tr.Marks)-1].Start
			first := slices.IndexFunc(tr.Ops, func(op traces.Op) bool { return op.Start >= second })
			tr.Ops[first].NoGrad = c.noGrad
			save := slices.IndexFunc(tr.Ops, func(op traces.Op) bool {
				return op.Start >= second && tr.Text(op.Name) == plan.SaveOp
			})
			tr.Strings = append(slices.Clone(tr.Strings), "aten::other")
			tr.Ops[save].Name, tr.Ops[save].Module = traces.StringID(len(tr.Strings)-1), 0
		}
		p, _, err := varied(t.Context(), []*traces.Trace{tr}, Hardware{Chosen: true})
		if err != nil {
			t.Fatal(err)
		}
		for _, q := range append(slices.Clone(p.Varied), p) {
			n := 0
			for i := range q.Ops {
				if op := &q.Ops[i]; op.Phase == traces.PhaseForward && op.Name == "aten::relu" {
					n++
					if op.Rerunnable != again {
						t.Errorf("evaluates %v: op %d may run again: %v", evaluates, i, op.Rerunnable)
					}
				}
			}
			if n != 3 {
				t.Errorf("a step of %d ops of the module, not 3", n)
			}
		}
	}
}
