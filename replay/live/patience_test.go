package live

import (
	"slices"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/traces"
)

// slowed returns a recording whose steps take seconds each.
func slowed(tr *traces.Trace) *traces.Trace {
	const times = 200 // 8 s
	for i := range tr.Ops {
		tr.Ops[i].Start *= times
		tr.Ops[i].Duration *= times
	}
	for i := range tr.Marks {
		tr.Marks[i].Start *= times
		tr.Marks[i].End *= times
	}
	for i := range tr.Accesses {
		tr.Accesses[i].Time *= times
	}
	for i := range tr.Events.Time {
		tr.Events.Time[i] *= times
	}
	return tr
}

// Where a step takes seconds, nobody waits for five captures and forty more steps: two captures are compared,
// and a few steps are watched.
func TestLongStepsAreCapturedAndWatchedLessOften(t *testing.T) {
	d := &drifting{tr: slowed(elsewhere(t)), slow: 8_000_000_000}
	p, err := NewTarget(d, Options{}).Problem(t.Context(), Hardware{Chosen: true})
	if err != nil {
		t.Fatal(err)
	}
	want := strings.Fields("describe describe on 4-with off")
	got := slices.Clone(d.asked)
	for i := range got {
		got[i] = strings.ReplaceAll(got[i], " ", "-")
	}
	if !slices.Equal(got, want) || len(p.Varied) != suspectTries*DescribedSteps-1 {
		t.Errorf("the training was asked %q, with %d other steps", got, len(p.Varied))
	}
}
