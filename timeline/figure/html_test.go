package figure

import (
	"slices"
	"testing"
)

func TestStacksOnThePageAreThoseOfPython(t *testing.T) {
	python := []string{"main train.py:9", "forward model.py:39", "<listcomp> <string>:1"}
	mixed := []string{"_start", python[0], "_PyEval_EvalFrameDefault ceval.c:741", python[1], python[2],
		"at::native::empty_cuda(c10::ArrayRef<long>)"}
	for _, c := range []struct {
		stack, want []string
		native      int
	}{
		{mixed, python, 3},
		{python, python, 0},
		{[]string{"_start", "at::empty()"}, []string{"_start", "at::empty()"}, 0}, // nothing else is known
		{nil, nil, 0},
	} {
		if got, native := pythonFrames(c.stack); !slices.Equal(got, c.want) || native != c.native {
			t.Errorf("of %q it keeps %q and counts %d, want %q and %d", c.stack, got, native, c.want,
				c.native)
		}
	}
}
