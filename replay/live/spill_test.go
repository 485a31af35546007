package live

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/managers/plan"
)

// A step larger than planned for moves further tensors, which the process is told of: the plan moves the
// second of three, and another leaves too once more was saved than planned. A step that saves as much as
// planned, in whatever order, moves what the plan says.
func TestALargerStepMovesTensorsThatThePlanKeeps(t *testing.T) {
	p, all := swapsAll(t, recording(t, triedCosts))
	pl, err := plan.Assemble(p, plan.Decisions{Absences: all.Absences[1:2]})
	if err != nil {
		t.Fatal(err)
	}
	pl.Executor = plan.TorchEager
	rules, err := rulesOf(p, pl, Same, true)
	if err != nil {
		t.Fatal(err)
	}
	e := encoder{p: p, pl: pl}
	if err := e.number(); err != nil {
		t.Fatal(err)
	}
	saved := e.saved()
	leaves, may := 0, 0
	for _, s := range rules.Spills {
		switch b := saved[s[0]]; {
		case s[1] != p.Buffers[b].Size:
			t.Errorf("save %d has %d bytes, and the process is told %d", s[0], p.Buffers[b].Size, s[1])
		case b == pl.Absences[0].Buffer && s[2] >= 0:
			t.Errorf("save %d leaves as planned, and may leave once more", s[0])
		case b == pl.Absences[0].Buffer:
			leaves++
		case s[2] >= 0:
			if may++; s[2] <= s[0] {
				t.Errorf("save %d is released at save %d", s[0], s[2])
			}
		}
	}
	if len(rules.Spills) != len(saved) || leaves != 1 || may != len(all.Absences)-1 {
		t.Fatalf("of %d saves the process is told of %d: %v", len(saved), len(rules.Spills), rules.Spills)
	}
	sized := func(sizes ...int64) *plan.Problem {
		known := map[plan.BufferID]int64{}
		for k, size := range sizes {
			known[saved[k]] = size
		}
		q, err := plan.Resized(p, known)
		if err != nil {
			t.Fatal(err)
		}
		for k, size := range sizes { // Resized makes nothing smaller
			q.Buffers[saved[k]].Size = size
		}
		if err := q.Finish(); err != nil {
			t.Fatal(err)
		}
		return q
	}
	const mib = 1 << 20
	for _, c := range []struct {
		sizes []int64
		want  int // of what leaves beside the plan
	}{
		{[]int64{mib, mib, mib}, 0},
		{[]int64{mib / 2, mib * 3 / 2, mib}, 0},
		{[]int64{mib * 3 / 2, mib, mib}, 1},
		{[]int64{mib, mib, mib * 3 / 2}, 1}, // the first one, though it was saved before
	} {
		q := sized(c.sizes...)
		more, err := spilled(p, q, pl)
		if err != nil || len(more) != c.want {
			t.Fatalf("%v: %d tensors leave beside the plan, not %d, %v", c.sizes, len(more), c.want, err)
		}
		late := c.sizes[2] > mib // the step is known to be larger once the first tensor has stayed
		if x := more; c.want > 0 && (x[0].Buffer != saved[0] || (x[0].Release > x[0].After+1) != late) {
			t.Errorf("%v: of buffers %v, this leaves: %+v", c.sizes, saved, x[0])
		}
		held, err := heldBy(p, q, pl)
		if err != nil {
			t.Fatal(err)
		}
		without, err := plan.Assemble(q, plan.Decisions{Absences: pl.Absences})
		if err != nil {
			t.Fatal(err)
		}
		peak, _ := without.PeakLive()
		if c.want > 0 && held >= peak && !late || held > peak || c.want == 0 && held != peak {
			t.Errorf("%v: the step holds %d bytes, and by the plan's own rules %d", c.sizes, held, peak)
		}
	}
	if rules, err := rulesOf(p, pl, Same, false); err != nil || rules.Spills != nil {
		t.Errorf("a plan for one shape has %v, %v", rules, err)
	}
	none, err := plan.Assemble(p, plan.Decisions{})
	if err != nil {
		t.Fatal(err)
	}
	none.Executor = plan.TorchEager
	if rules, err := rulesOf(p, none, Same, true); err != nil || rules.Spills != nil {
		t.Errorf("a plan that moves nothing moves more in larger steps: %v, %v", rules, err)
	}
}

// What is predicted of a larger step has to move as much as the agent does.
func TestTheAgentMovesAsMuchForEachByteAsIsPredicted(t *testing.T) {
	source, err := os.ReadFile("../../capture/pytorch/agent/sizes.py")
	if err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprintf("\nFOR_EACH = %d\n", spillForEach); !strings.Contains(string(source), want) {
		t.Errorf("sizes.py does not say %q", want)
	}
}
