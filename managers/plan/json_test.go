package plan_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/managers/plan/plantest"
)

func TestAPlanSurvivesItsFile(t *testing.T) {
	for seed := range uint64(80) {
		p, pl := made(t, seed, 30, 0.6)
		pl.Notes = []string{"a note"}
		var b bytes.Buffer
		if err := pl.WriteJSON(&b, p); err != nil {
			t.Fatal(err)
		}
		back, err := plan.ReadJSON(bytes.NewReader(b.Bytes()), p)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if !slices.Equal(back.Instances, pl.Instances) || !slices.Equal(back.Steps, pl.Steps) ||
			back.Footprint != pl.Footprint || !slices.Equal(back.Notes, pl.Notes) {
			t.Errorf("seed %d: another plan comes back", seed)
		}
		other := plantest.Random(seed+1000, 30)
		if _, err := plan.ReadJSON(bytes.NewReader(b.Bytes()), other); err == nil ||
			!strings.Contains(err.Error(), "another iteration") {
			t.Errorf("seed %d: another problem's plan is taken: %v", seed, err)
		}
	}
}

func FuzzReadJSON(f *testing.F) {
	p, pl := made(f, 3, 12, 0.7)
	var b bytes.Buffer
	if err := pl.WriteJSON(&b, p); err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes())
	f.Add([]byte(`{"schema_version":1}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		if pl, err := plan.ReadJSON(bytes.NewReader(data), p); err == nil {
			if err := plan.Validate(p, pl); err != nil {
				t.Fatal(err)
			}
		}
	})
}
