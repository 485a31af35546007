package planner

import (
	"slices"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/timeline/timelinetest"
	"github.com/gmemtop/gmemtop/traces/described"
)

// The table plans the step that T plans, the second of two that were captured, also where they are in a file.
func TestOfTwoCapturedStepsTheSecondIsPlanned(t *testing.T) {
	const steps = `{"gmemtop":"described","version":1,"torch":"2.9.0","device":"cpu","pid":7,"rank":-1,` +
		`"world_size":-1,"epoch_ns":1,"steps":[[0,1000],[1000,2000]]}
{"k":"alloc","id":1,"size":2097152,"addr":4194304,"t":100,"category":"activation","on":"cpu"}
{"k":"op","t":200,"d":50,"name":"aten::relu","phase":"forward","module":"m","r":[1],"w":[1],"m":[]}
{"k":"free","id":1,"t":400}
{"k":"alloc","id":2,"size":2097152,"addr":8388608,"t":1100,"category":"activation","on":"cpu"}
{"k":"op","t":1200,"d":50,"name":"aten::relu","phase":"forward","module":"m","r":[2],"w":[2],"m":[]}
{"k":"free","id":2,"t":1400}
`
	for _, path := range []string{"", "run.gmt"} {
		tr, err := described.Read(t.Context(), strings.NewReader(steps), nil)
		if err != nil {
			t.Fatal(err)
		}
		tr.Source.Path = path
		p, err := New().Problem(t.Context(), timelinetest.Built(t, tr), plan.Hardware{Name: "any"})
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Contains(p.Notes, "planned for step 2, one of 2 in the recording") {
			t.Errorf("%q: %q", path, p.Notes)
		}
	}
}
