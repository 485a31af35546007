package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/scripts/internal/trial"
)

// TestThePageCountsWhatIsOff writes the page from a kept comparison of each kind.
func TestThePageCountsWhatIsOff(t *testing.T) {
	row := func(manager, target string, planned, footprint, step int64, causes ...string) trial.Row {
		return trial.Row{Manager: manager, Executor: "torch-eager", Target: target, Available: true,
			Predicted: planned << 20, Footprint: footprint << 20, StepTime: step, Causes: causes}
	}
	counted := func(peak, step int64) stretch { return stretch{Peak: peak << 20, StepTime: step} }
	o := options{results: t.TempDir()}
	for name, c := range map[string]kept{
		"mlp-80": {Comparison: trial.Comparison{StepTime: 1_000_000, Budget: 103 << 20, Results: []trial.Row{
			row("sqrt", "sim", 0, 101, 1_000_000), row("joint", "sim", 0, 101, 1_000_000),
			row("home", "sim", 0, 101, 1_000_000), row("delta", "sim", 0, 101, 1_000_000),
			{Manager: "rotor", Target: "sim", Reason: "it is no chain"},
			row("sqrt", "live", 100, 102, 1_060_000, "a counter"), // within
			{Manager: "dtr", Target: "live", Reason: "it was turned off."},
			row("joint", "live", 100, 100, 1_000_000, "a counter"), // the agent sees nothing
			row("home", "live", 100, 100, 920_000),
			row("delta", "live", 100, 100, 1_000_000),
		}}, Without: counted(200, 900_000), Counted: []stretch{counted(102, 1_060_000),
			counted(104, 1_000_000), counted(100, 920_000), counted(100, 800_000)}},
		"mlp-60": {Comparison: trial.Comparison{Impossible: "it needs more"}},
	} {
		text, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(o.results, name+".json"), text, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	var page strings.Builder
	if err := o.write(&page); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"`" + rates() + "`",
		"Of 4 plans carried out, 3 are within 3 % of the planned footprint and 2 within 7 % of the " +
			"simulated\nstep time. What PyTorch counted is +0.0 to +4.0 % from what was planned, and above " +
			"the budget under 1.\n",
		"\nThe others:\n\n- mlp at 80 %, joint: a counter\n- mlp at 80 %, home: a step without a plan",
		"Not measured at 40 %: mlp.", "Not measured at 80, 60, 40 %: vgg16, ",
		"Not possible: it needs more.", "No plan: rotor: it is no chain.",
		"Not carried out: dtr: it was turned off.\n",
		"| sqrt | 100.0 | 101.0 | 102.0 | +2.0 % | 1.00 | 1.06 | +6.0 % |  |",
		"A step without a plan: 1.00 ms described, 0.90 ms timed.",
		"| joint | 100.0 | 101.0 | **104.0** (100.0) | +4.0 % | 1.00 | 1.00 | +0.0 % | a counter |",
		"| home | 100.0 | 101.0 | 100.0 | +0.0 % | 1.00 | 0.92 | -8.0 % | a step without a plan is also",
		"| 1.00 | 0.80 (1.00) | -20.0 % | a step without a plan is also off from its description |",
	} {
		if !strings.Contains(page.String(), want) {
			t.Errorf("the page lacks %q:\n%s", want, page.String())
		}
	}
}

// TestAnEarlierPageStandsInForWhatIsNotKept copies its sections, counts their rows, and says which they are.
func TestAnEarlierPageStandsInForWhatIsNotKept(t *testing.T) {
	const mlp = "## mlp at 80 %\n\nVirtual time.\n\n" +
		"| manager | planned, MiB | simulated | counted | off | simulated, ms | timed | off | cause |\n" +
		"|---|---:|---:|---:|---:|---:|---:|---:|---|\n" +
		"| sqrt | 100.0 | 101.0 | 104.0 (100.0) | +4.0 % | 1.00 | 0.92 (1.00) | -8.0 % | a cause |\n" +
		"| joint | 100.0 | 101.0 | 100.0 | +0.0 % | 1.00 | 1.00 | +0.0 % |  |\n"
	o := options{results: t.TempDir()}
	o.page = filepath.Join(o.results, "page.md")
	vgg16 := strings.NewReplacer("mlp", "vgg16", "counted", "measured", "timed", "measured").Replace(mlp)
	page := "# Predictions\n\nOf 90 plans.\n\n" + mlp + "\n## mlp at 60 %\n\nIt was not possible.\n\n" +
		vgg16
	if err := os.WriteFile(o.page, []byte(page), 0o666); err != nil {
		t.Fatal(err)
	}
	kept := filepath.Join(o.results, "mlp-60.json")
	if err := os.WriteFile(kept, []byte(`{"impossible":"it needs more"}`), 0o666); err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	if err := o.write(&text); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"\n" + mlp, "Not possible: it needs more.", "Not measured at 40 %: mlp.",
		"Of 2 plans carried out, 1 are within 3 % of the planned footprint and 1 within 7 % of the " +
			"simulated\nstep time.", "\n- mlp at 80 %, sqrt: a cause\n",
		"\nTaken over from an earlier page: mlp at 80 %.\n",
		"\nNot measured again since PyTorch itself is asked, and not among the plans above: vgg16 at 80 %.",
		"## vgg16 at 80 %\n\nVirtual time.\n\n" + agents +
			"\n\n| manager | planned, MiB | simulated | measured |",
	} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("the page lacks %q:\n%s", want, text.String())
		}
	}
	if strings.Contains(text.String(), "It was not possible") {
		t.Errorf("the page still shows what was measured again:\n%s", text.String())
	}
}

// TestTheSimulatorIsToldTheMachinesLink compares the two descriptions of the machine.
func TestTheSimulatorIsToldTheMachinesLink(t *testing.T) {
	h := hardware()
	for _, c := range []struct {
		rate string
		got  float64
	}{
		{"out=52", h.D2H.BytesPerSecond / 1e9}, {"in=53", h.H2D.BytesPerSecond / 1e9},
		{"together=0.85", h.Together},
		{"copy=9000", float64(h.D2H.Latency)}, {"copy=9000", float64(h.H2D.Latency)},
		{"launch=6000", float64(h.LaunchGap)}, {"driver=100000", float64(h.MallocTime)},
	} {
		name, value, _ := strings.Cut(c.rate, "=")
		var want float64
		if err := json.Unmarshal([]byte(value), &want); err != nil || want != c.got {
			t.Errorf("%s: the simulator has %v", c.rate, c.got)
		}
		if !strings.Contains(","+rates()+",", ","+c.rate+",") {
			t.Errorf("the clock has no %s=%s: %s", name, value, rates())
		}
	}
}

// TestStepsUnderAPlanCount finds, in a training's output, the plans that lasted and what they took.
func TestStepsUnderAPlanCount(t *testing.T) {
	lines := strings.Join([]string{
		"0 900 50", "0 100 10", "0 100 30", "0 100 20", // the last three before the first plan
		"7 999 99", "7 999 99", "7 999 99", "7 60 15", "7 61 17", "7 60 16", "7 999 99", // a plan
		"0 500 10",
		"8 70 15", "8 70 15", // one that was given up
		"0 100 10",
		"9 80 15", "9 80 15", "9 80 15", "9 80 15", "9 80 15", "9 80 15",
		"0 1", // not whole
	}, "\n")
	steps, err := readSteps(strings.NewReader(lines))
	if err != nil {
		t.Fatal(err)
	}
	under, without := stretches(steps)
	if want := (stretch{Peak: 100, StepTime: 20, Steps: 4}); without != want {
		t.Errorf("without a plan: %v, want %v", without, want)
	}
	want := []stretch{{7, 61, 16, 7}, {9, 80, 15, 6}}
	if !slices.Equal(under, want) {
		t.Errorf("under plans: %v, want %v", under, want)
	}
	if _, err := readSteps(strings.NewReader("0 1 2\n0 x 2\n")); err == nil ||
		!strings.Contains(err.Error(), "line 2") {
		t.Errorf("a damaged line: %v", err)
	}
}

// TestAComparisonIsKeptWithWhatPyTorchCounted refuses one whose plans the training did not see.
func TestAComparisonIsKeptWithWhatPyTorchCounted(t *testing.T) {
	dir := t.TempDir()
	counted, path := filepath.Join(dir, "counted"), filepath.Join(dir, "kept.json")
	lines := "0 100 10\n" + strings.Repeat("7 60 15\n", warm+timed)
	if err := os.WriteFile(counted, []byte(lines), 0o666); err != nil {
		t.Fatal(err)
	}
	const one = `{"results":[{"manager":"sqrt","target":"live","available":true},` +
		`{"manager":"dtr","target":"live"}`
	if err := keep(path, []byte(one+`]}`), counted); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var k kept
	if err := json.Unmarshal(text, &k); err != nil {
		t.Fatal(err)
	}
	if len(k.Counted) != 1 || k.Counted[0].Peak != 60 || k.Without.Peak != 100 || len(k.Results) != 2 {
		t.Errorf("kept %+v", k)
	}
	err = keep(path, []byte(one+`,{"manager":"joint","target":"live","available":true}]}`), counted)
	if err == nil || !strings.Contains(err.Error(), "2 plans were measured, and the training saw 1") {
		t.Errorf("with a plan that the training did not see: %v", err)
	}
}
