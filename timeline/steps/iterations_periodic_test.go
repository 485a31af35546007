package steps_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/steps"
	"github.com/gmemtop/gmemtop/timeline/timelinetest"
)

// groups is a recording without marks: parameters, which are large, and rounds. A round has each times the
// same run of allocations, each of its own size and line, and then extra others, which are freed at once. The
// blocks of a run are freed at its end or, if kept, at the end of the round, the last ones first. It returns
// where runs and rounds begin.
func groups(t *testing.T, parameters, rounds, each, length, extra int, kept bool) (d *timeline.Device, runs,
	whole []int) {
	t.Helper()
	var b strings.Builder
	for i := range max(length, extra) {
		fmt.Fprintf(&b, "stack r%d work model.py:%d < main train.py:%d\n", i, 10+i, 5+i)
		fmt.Fprintf(&b, "stack e%d check eval.py:%d < main t.py:90\n", i, i)
	}
	at := parameters
	for i := range parameters {
		fmt.Fprintf(&b, "+ p%d %dm\n", i, 500+i)
	}
	for range rounds {
		whole = append(whole, at)
		for k := range each {
			runs = append(runs, at)
			for i := range length {
				fmt.Fprintf(&b, "+ x%d-%d %dk r%d\n", k, i, i+1, i)
			}
			at += length
			for i := length - 1; !kept && i >= 0; i-- {
				fmt.Fprintf(&b, "- x%d-%d\n", k, i)
				at += 2
			}
		}
		for i := range extra {
			fmt.Fprintf(&b, "+ e %dk e%d\n- e\n", 3*i+1, i)
			at += 3
		}
		for k := each - 1; kept && k >= 0; k-- {
			for i := length - 1; i >= 0; i-- {
				fmt.Fprintf(&b, "- x%d-%d\n", k, i)
				at += 2
			}
		}
	}
	return timelinetest.Script(t, b.String()).Main(), runs, whole
}

// What repeats within a round is a step if memory is back where it was at its end, and the evaluation after
// some of them makes no round a step. If memory is still held, the same allocations are layers of one step.
func TestRunsAreStepsIfTheirMemoryIsFreedAndLayersIfItIsKept(t *testing.T) {
	for _, length := range []int{8, 9, 17, 40} {
		for _, each := range []int{7, 10} {
			for _, extra := range []int{4, 5, length/2 + 2} {
				for _, kept := range []bool{false, true} {
					parameters := length * (each % 4) // 3 or 2 runs of them
					d, runs, whole := groups(t, parameters, 4, each, length, extra, kept)
					it := steps.Of(d)
					if it.Source != steps.FromPeriodicity {
						t.Fatalf("iterations from %v", it.Source)
					}
					want := runs
					if kept {
						want = whole
					}
					var got []int
					for _, x := range it.List {
						got = append(got, int(x.First))
					}
					if !slices.Equal(got, want) {
						t.Errorf("runs of %d, %d a round and %d others, kept %v: steps begin at %v, not %v",
							length, each, extra, kept, got, want)
					}
				}
			}
		}
	}
}

func TestWhatRepeatsTooLittleIsNoStep(t *testing.T) {
	for _, c := range []struct {
		length, times int
		found         bool
	}{{7, 40, false}, {8, 2, true}, {8, 1, false}, {30, 2, true}, {30, 1, false}} {
		d, _, _ := groups(t, 0, 1, c.times, c.length, 0, false)
		if it := steps.Of(d); (len(it.List) == c.times) != c.found || !c.found && len(it.List) > 0 {
			t.Errorf("%d allocations %d times: %d steps by %v", c.length, c.times, len(it.List), it.Source)
		}
	}
}

// Within this step, sixteen allocations in a row repeat at distances of 16 and 48, never at the step's length
// of 64 alone. Only grams as long as the whole step, half of the recording, propose 64.
func TestAStepOfWhichEachPartRepeatsIsFoundInTwoSteps(t *testing.T) {
	var b strings.Builder
	for i := range 15 {
		fmt.Fprintf(&b, "stack s%d same model.py:%d < main t.py:1\n", i, i)
	}
	b.WriteString("stack x x model.py:90 < main t.py:1\nstack y y model.py:91 < main t.py:1\n")
	for range 2 {
		for part, last := range []string{"x", "x", "y", "y"} {
			for i := range 15 {
				fmt.Fprintf(&b, "+ b%d-%d %dk s%d\n", part, i, i+1, i)
			}
			fmt.Fprintf(&b, "+ b%d-15 20k %s\n", part, last)
		}
		for k := range 64 {
			fmt.Fprintf(&b, "- b%d-%d\n", k/16, k%16)
		}
	}
	it := steps.Of(timelinetest.Script(t, b.String()).Main())
	if len(it.List) != 2 || it.List[0].Blocks != 64 || it.List[1].Blocks != 64 {
		t.Errorf("%d steps by %v, %+v", len(it.List), it.Source, it.List)
	}
}

// A step may take four times as many allocations as the others. Beyond a longer stretch of something else
// there are no more steps of the same training.
func TestAStepIsAtMostFourTimesAsLongAsTheOthers(t *testing.T) {
	const length, times = 10, 12
	for _, c := range []struct{ others, steps int }{{3 * length, times + 1}, {3*length + 1, times}} {
		for _, at := range []int{1, times} { // after the first step, or before the last one
			var b strings.Builder
			for i := range c.others {
				fmt.Fprintf(&b, "stack e%d check eval.py:%d < main t.py:90\n", i, i)
			}
			for i := range length {
				fmt.Fprintf(&b, "stack r%d work model.py:%d < main t.py:5\n", i, i)
			}
			for k := range times + 1 {
				for i := range c.others {
					if k == at {
						fmt.Fprintf(&b, "+ e %dk e%d\n- e\n", i+1, i)
					}
				}
				for i := range length {
					fmt.Fprintf(&b, "+ x%d %dk r%d\n", i, i+1, i)
				}
				for i := range length {
					fmt.Fprintf(&b, "- x%d\n", i)
				}
			}
			if it := steps.Of(timelinetest.Script(t, b.String()).Main()); len(it.List) != c.steps {
				t.Errorf("%d other allocations before step %d: %d steps, not %d", c.others, at+1,
					len(it.List), c.steps)
			}
		}
	}
}

// From Python 3.11 on, PyTorch's stacks of Python and C++ have the C++ frames of the program's start at
// another depth for each allocation. What a layer of a single forward pass allocates is inside one call of
// the model all the same.
func TestLayersAreNoStepsWhereNativeFramesStandAtDifferentDepths(t *testing.T) {
	const call = "_call_impl torch/nn/modules/module.py:1"
	python := []string{"main train.py:5", call, "forward model.py:292", call, "forward model.py:249"}
	for _, native := range []bool{false, true} {
		var b strings.Builder
		stack := func(name string, depth int, inner ...string) {
			var list []string
			for i, f := range append(slices.Clone(python[:depth]), inner...) { // outermost first
				list = append(list, f)
				if native && i == len(name)%2 {
					list = append(list, "_start ??:0", "Py_RunMain ??:0")
				}
			}
			slices.Reverse(list)
			fmt.Fprintf(&b, "stack %s %s\n", name, strings.Join(list, " < "))
		}
		stack("embed", 2, "forward model.py:280")
		stack("head", 2, "forward model.py:300")
		for i := range 12 {
			stack(strings.Repeat("x", i+1), 5, fmt.Sprintf("op ops.py:%d", i))
		}
		b.WriteString("+ e 7m embed\n")
		for k := range 16 {
			for i := range 12 {
				fmt.Fprintf(&b, "+ b%d-%d %dk %s\n", k, i, i+1, strings.Repeat("x", i+1))
			}
		}
		b.WriteString("+ h 9m head\n")
		if it := steps.Of(timelinetest.Script(t, b.String()).Main()); len(it.List) > 0 {
			t.Errorf("native frames %v: %d layers are said to be steps, by %v", native, len(it.List),
				it.Source)
		}
	}
}
