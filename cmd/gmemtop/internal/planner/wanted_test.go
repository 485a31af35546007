package planner

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/exit"
	"github.com/gmemtop/gmemtop/replay/live"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

func TestChoiceTermsApplyToManagersAndFiles(t *testing.T) {
	file := filepath.Join(t.TempDir(), "mine.json")
	if err := os.WriteFile(file, []byte(`{"schema_version":1,"format":"gmemtop plan"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, f := range []Wanted{{Manager: "joint"}, {Plan: file}} {
		f.MostOverhead, f.Results, f.UntilPlanned = "10%", "any", unplannedOffload
		c, err := f.Choice()
		if err != nil {
			t.Fatal(err)
		}
		if c.MostOverhead != 0.1 || c.Results != live.Any || !c.Offload || c.Make == nil ||
			c.Hardware.Name == "" {
			t.Errorf("%+v", c)
		}
		if want := map[bool]string{true: "joint", false: "mine.json"}[f.Manager != ""]; c.Name != want {
			t.Errorf("it is called %q, not %q", c.Name, want)
		}
	}
}

func TestABudgetIsAShareOfTheRoomIfThatIsKnown(t *testing.T) {
	f := Wanted{Manager: "joint"}
	if n, err := f.fitInto(t.Context(), nil, maybe.Known(1000)); n != 900 || err != nil {
		t.Errorf("a budget of %d, %v", n, err)
	}
	n, err := f.fitInto(t.Context(), nil, maybe.Int{})
	if err == nil || !strings.Contains(err.Error(), "--budget") {
		t.Errorf("of an unknown room: %d, %v", n, err)
	}
}

func TestWantedPlansThatContradictThemselvesAreMistakes(t *testing.T) {
	for want, w := range map[string]Wanted{
		"--until-planned":         {UntilPlanned: "later"},
		"name one":                {MostOverhead: "10%"},
		"choose one of them":      {Manager: "joint", Plan: "plan.json"},
		"--most-overhead":         {Manager: "joint", MostOverhead: "a tenth"},
		`--results "perhaps"`:     {Manager: "joint", Results: "perhaps"},
		"--most-overhead \"-1%\"": {Manager: "joint", MostOverhead: "-1%"},
	} {
		if _, err := w.Choice(); !exit.IsMistake(err) || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want a mistake with %q", w, err, want)
		}
	}
	if c, err := (&Wanted{UntilPlanned: UnplannedAuto}).Choice(); c != nil || err != nil {
		t.Errorf("without a plan: %+v %v", c, err)
	}
}

// Until there is a plan, tensors go to the host if the plan will take memory off the peak.
func TestWhatIsOffloadedUntilThereIsAPlan(t *testing.T) {
	for _, c := range []struct {
		w    Wanted
		want string
	}{
		{Wanted{UntilPlanned: UnplannedAuto}, ""},
		{Wanted{UntilPlanned: UnplannedAuto, Manager: "joint"}, "cuda"},
		{Wanted{UntilPlanned: UnplannedAuto, Manager: "stalloc"}, ""},
		{Wanted{UntilPlanned: UnplannedAuto, Plan: "plan.json"}, "cuda"},
		{Wanted{UntilPlanned: unplannedKeep, Manager: "joint"}, ""},
		{Wanted{UntilPlanned: unplannedOffload}, "cuda cpu"},
	} {
		if got := strings.Join(c.w.Offloads(), " "); got != c.want {
			t.Errorf("%+v: %q, want %q", c.w, got, c.want)
		}
	}
}
