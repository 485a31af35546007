package samples_test

import (
	"bytes"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/gmt"
	"github.com/gmemtop/gmemtop/traces/samples"
)

func TestEverySampleOpensAndHasATimeline(t *testing.T) {
	if len(samples.List()) == 0 {
		t.Fatal("there are no samples")
	}
	for _, name := range samples.List() {
		b, err := samples.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		tr, err := gmt.Read(t.Context(), bytes.NewReader(b), nil)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if tr.Kind() < traces.Lifetimes || len(tr.Losses) > 0 {
			t.Errorf("%s is a %s trace with losses %v; samples show a timeline and lack nothing", name,
				tr.Kind(), tr.Losses)
		}
	}
}

func TestTheReadmeSaysHowEachSampleWasMade(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range samples.List() {
		if !strings.Contains(string(readme), "`"+name+".gmt`") {
			t.Errorf("README.md does not mention %s.gmt", name)
		}
	}
}

func TestAnUnknownNameIsAnError(t *testing.T) {
	if _, err := samples.Open("../samples"); !errors.Is(err, samples.ErrUnknown) {
		t.Errorf("got %v", err)
	}
}
