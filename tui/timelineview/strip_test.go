package timelineview

import (
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/steps"
	"github.com/gmemtop/gmemtop/traces"
)

// partsOf reads parts, one per word: F, B or O, then which part frees most of what it leaves; F- leaves
// nothing.
func partsOf(text string) (list []steps.Part) {
	for i, word := range strings.Fields(text) {
		p := steps.Part{First: timeline.Moment(10 * i), End: timeline.Moment(10*i + 10), Frees: -1, Kept: 1}
		switch word[0] {
		case 'F':
			p.Phase = traces.PhaseForward
		case 'B':
			p.Phase = traces.PhaseBackward
		case 'O':
			p.Phase = traces.PhaseOptimizer
		}
		if rest := word[1:]; rest == "-" {
			p.Kept = 0
		} else if rest != "" {
			p.Frees = int(rest[0] - '0')
		}
		list = append(list, p)
	}
	return list
}

func TestStripNamesParts(t *testing.T) {
	twice := "fwd 1, bwd 1, fwd 2, bwd 2, opt"
	for in, want := range map[string]string{
		// The phases say as much.
		"F1 B O F4 B O": "",
		// Two micro-batches a step.
		"F1 B F3 B O F6 B F8 B O": twice + ", " + twice,
		// An evaluation leaves nothing, or what the next call frees.
		"F1 B O F- F- F6 B O": "fwd, bwd, opt, eval, eval, fwd, bwd, opt",
		"F1 B O F4 F5 F6 B O": "fwd, bwd, opt, eval, eval, fwd, bwd, opt",
		"F1 F2 F3 F":          "eval, eval, eval, fwd",
		// Two losses, backward in the other order.
		"F3 F2 B B O": "fwd 1, fwd 2, bwd 2, bwd 1, opt",
		// Two models and one backward.
		"F2 F2 B O": "",
		// The recording ends in a forward, or does not show what one is for.
		"F1 B O F":   "",
		"F1 B O F O": "",
		"":           "",
	} {
		var got []string
		for _, p := range strip(partsOf(in), nil, nil) {
			got = append(got, strings.TrimPrefix(p.Names[len(p.Names)-1], "~"))
		}
		if text := strings.Join(got, ", "); text != want {
			t.Errorf("%q: %q, want %q", in, text, want)
		}
	}
}

func TestABackwardLastsAsLongAsItsPhase(t *testing.T) {
	list := partsOf("F1 B F3 B O")
	for i := range list { // the engine's threads have no Python frames
		if list[i].Phase == traces.PhaseBackward {
			list[i].End = list[i].First + 1
		}
	}
	phases := []steps.PhaseSpan{
		{Phase: traces.PhaseForward, First: 0, Last: 10}, {Phase: traces.PhaseBackward, First: 10, Last: 18},
		{Phase: traces.PhaseForward, First: 20, Last: 30}, {Phase: traces.PhaseBackward, First: 30, Last: 45},
	}
	got := strip(list, phases, nil)
	if got[1].End != 18 || got[3].End != 40 {
		t.Errorf("the backwards end at %d and %d, want 18 and 40", got[1].End, got[3].End)
	}
}

func TestAStepEndsWithItsIterationToo(t *testing.T) {
	list := partsOf("F1 B F3 B F5 B") // an optimizer that allocates nothing is no part
	if strip(list, nil, nil) == nil {
		t.Error("parts count as micro-batches although there are no iterations")
	}
	if got := strip(list, nil, []steps.Iteration{{First: 0}, {First: 20}, {First: 40}}); got != nil {
		t.Errorf("three steps are %v", got)
	}
}
