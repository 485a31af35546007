package main

import (
	"encoding/json"
	"os"
	"path/filepath"
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
	slower := row("delta", "live", 100, 100, 800_000)
	slower.Before = 900_000 // beside the million of the description
	o := options{results: t.TempDir()}
	for name, c := range map[string]trial.Comparison{
		"mlp-80": {StepTime: 1_000_000, Results: []trial.Row{
			row("sqrt", "sim", 0, 101, 1_000_000), row("joint", "sim", 0, 101, 1_000_000),
			row("home", "sim", 0, 101, 1_000_000), row("delta", "sim", 0, 101, 1_000_000),
			{Manager: "rotor", Target: "sim", Reason: "it is no chain"},
			row("sqrt", "live", 100, 102, 1_060_000, "a counter"), // within
			row("joint", "live", 100, 104, 1_000_000, "a counter"),
			row("home", "live", 100, 100, 920_000),
			slower,
			{Manager: "dtr", Target: "live", Reason: "it was turned off."},
		}},
		"mlp-60": {Impossible: "it needs more"},
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
		"Of 4 plans carried out, 1 are more than 3 % off in footprint and 2 more than 7 % in step time.",
		"Not measured at 40 %: mlp.", "Not measured at 80, 60, 40 %: vgg16, ",
		"Not possible: it needs more.", "No plan: rotor: it is no chain.",
		"Not carried out: dtr: it was turned off.\n",
		"| sqrt | 100.0 | 101.0 | 102.0 | +2.0 % | 1.00 | 1.06 | +6.0 % |  |",
		"| joint | 100.0 | 101.0 | 104.0 | +4.0 % | 1.00 | 1.00 | +0.0 % | a counter |",
		"| home | 100.0 | 101.0 | 100.0 | +0.0 % | 1.00 | 0.92 | -8.0 % | not found |",
		"| -20.0 % | a step without a plan is also off from its description |",
	} {
		if !strings.Contains(page.String(), want) {
			t.Errorf("the page lacks %q:\n%s", want, page.String())
		}
	}
}

// TestAnEarlierPageStandsInForWhatIsNotKept copies its sections, counts their rows, and says which they are.
func TestAnEarlierPageStandsInForWhatIsNotKept(t *testing.T) {
	const mlp = "## mlp at 80 %\n\nVirtual time.\n\n" +
		"| manager | planned, MiB | simulated | measured | off | simulated, ms | measured | off | cause |\n" +
		"|---|---:|---:|---:|---:|---:|---:|---:|---|\n" +
		"| sqrt | 100.0 | 101.0 | 104.0 | +4.0 % | 1.00 | 0.92 | -8.0 % | a cause |\n" +
		"| joint | 100.0 | 101.0 | 100.0 | +0.0 % | 1.00 | 1.00 | +0.0 % |  |\n"
	o := options{results: t.TempDir()}
	o.page = filepath.Join(o.results, "page.md")
	page := "# Predictions\n\nOf 90 plans.\n\n" + mlp + "\n## mlp at 60 %\n\nIt was not possible.\n"
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
		"Of 2 plans carried out, 1 are more than 3 % off in footprint and 1 more than 7 % in step time.",
		"\nTaken over from an earlier page: mlp at 80 %.\n"} {
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
