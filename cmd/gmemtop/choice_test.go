package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/replay/live"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

func TestChoiceTermsApplyToManagersAndFiles(t *testing.T) {
	file := filepath.Join(t.TempDir(), "mine.json")
	if err := os.WriteFile(file, []byte(`{"schema_version":1,"format":"gmemtop plan"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, f := range []choiceFlags{{manager: "joint"}, {file: file}} {
		f.most, f.results, f.unplanned = "10%", "any", unplannedOffload
		c, err := f.choice()
		if err != nil {
			t.Fatal(err)
		}
		if c.MostOverhead != 0.1 || c.Results != live.Any || !c.Offload || c.Make == nil ||
			c.Hardware.Name == "" {
			t.Errorf("%+v", c)
		}
		if want := map[bool]string{true: "joint", false: "mine.json"}[f.manager != ""]; c.Name != want {
			t.Errorf("it is called %q, not %q", c.Name, want)
		}
	}
}

func TestABudgetIsAShareOfTheRoomIfThatIsKnown(t *testing.T) {
	f := choiceFlags{manager: "joint"}
	if n, err := f.fitInto(t.Context(), nil, maybe.Known(1000)); n != 900 || err != nil {
		t.Errorf("a budget of %d, %v", n, err)
	}
	n, err := f.fitInto(t.Context(), nil, maybe.Int{})
	if err == nil || !strings.Contains(err.Error(), "--budget") {
		t.Errorf("of an unknown room: %d, %v", n, err)
	}
}
