package report

import (
	"slices"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/autopsy"
)

const mib = 1 << 20

// simulatedOf returns settings that hold peak at most and need least.
func simulatedOf(name, setting string, peak, least, capacity int64) SimulatedSettings {
	s := SimulatedSettings{Name: name, Setting: setting, Conf: setting, PeakReserved: peak * mib,
		SmallestCap: known(least * mib), Exactness: "exact"}
	if capacity > 0 {
		fits, spare := least <= capacity, (capacity-least)*mib
		s.Fits, s.Spare = &fits, &spare
	}
	return s
}

// simulationOf is a simulation from an empty start in which the recorded settings hold 100 MiB and need 90
// MiB.
func simulationOf(capacity int64, settings ...SimulatedSettings) *Simulation {
	recorded := simulatedOf("recorded", "", 100, 90, capacity)
	s := &Simulation{Available: true, Emulator: "as recorded", Fidelity: 1, FromStart: true,
		Recorded: &recorded, Settings: settings}
	if capacity > 0 {
		s.Capacity = known(capacity * mib)
	}
	return s
}

func offered(oom bool) *OOMDevice {
	yes := true
	d := &OOMDevice{Sentence: "Why.", OOM: oom, Levers: []Lever{
		{Name: "micro_batch", Saves: known(40 * mib), Exactness: "inferred"},
		{Name: "expandable_segments", Saves: known(5 * mib), Exactness: "inferred"},
		{Name: "max_split_size", Exactness: "inferred"},
	}}
	if oom {
		d.Levers[1].Fits = &yes
	}
	return d
}

func names(d *OOMDevice) string {
	var all []string
	for _, l := range d.Levers {
		all = append(all, l.Name)
	}
	return strings.Join(all, " ")
}

func TestSettingsThatServeTheFailedRequestComeFirst(t *testing.T) {
	d := offered(true)
	d.Simulate(simulationOf(80,
		simulatedOf("expandable_segments", "expandable_segments:True", 70, 60, 80),
		simulatedOf("max_split_size", "max_split_size_mb:32", 80, 85, 80),
		simulatedOf("max_split_size", "max_split_size_mb:64", 80, 75, 80),
		simulatedOf("roundup_power2_divisions", "roundup_power2_divisions:4", 99, 95, 80)), timeline.IEC)
	if got := names(d); got != "expandable_segments max_split_size micro_batch" {
		t.Error(got)
	}
	if l := d.Levers[1]; l.Simulated.Setting != "max_split_size_mb:64" || *l.Saves != 15*mib || !*l.Fits {
		t.Errorf("%+v", l)
	}
	if want := "Why. Simulated, the same run fits with expandable_segments:True, 20.0 MiB to spare."; d.Sentence != want {
		t.Error(d.Sentence)
	}
}

func TestTheSimulationOverrulesAnEstimate(t *testing.T) {
	d := offered(true)
	d.Simulate(simulationOf(80, simulatedOf("expandable_segments", "expandable_segments:True", 80, 88, 80)), timeline.IEC)
	l := d.Levers[slices.IndexFunc(d.Levers, func(l Lever) bool { return l.Name == "expandable_segments" })]
	if l.Fits == nil || *l.Fits || !strings.HasPrefix(d.verdict(&l, timeline.IEC), "not enough by itself, 8.00 MiB are missing") {
		t.Errorf("%+v", l)
	}
	if want := "Why. Simulated, it does not fit with expandable_segments:True."; d.Sentence != want {
		t.Error(d.Sentence)
	}
	// If there may have been more memory, or the recording begins in the middle, "no" proves nothing.
	for _, change := range []func(*Simulation){func(s *Simulation) { s.CapacityAtLeast = true }, func(s *Simulation) { s.FromStart = false }} {
		d, s := offered(true), simulationOf(80, simulatedOf("expandable_segments", "expandable_segments:True", 80, 88, 80))
		change(s)
		d.Simulate(s, timeline.IEC)
		for _, l := range d.Levers {
			if l.Simulated != nil && l.Fits != nil {
				t.Errorf("%+v", l)
			}
		}
		if d.Sentence != "Why." {
			t.Error(d.Sentence)
		}
	}
}

func TestWithoutAnOutOfMemoryOnlySettingsThatSaveAreOffered(t *testing.T) {
	d := offered(false)
	d.Simulate(simulationOf(0,
		simulatedOf("expandable_segments", "expandable_segments:True", 70, 60, 0),
		simulatedOf("max_split_size", "max_split_size_mb:32", 104, 85, 0),
		simulatedOf("roundup_power2_divisions", "roundup_power2_divisions:8", 50, 50, 0)), timeline.IEC)
	if got := names(d); got != "roundup_power2_divisions micro_batch expandable_segments" {
		t.Error(got)
	}
	if want := "Why. Simulated, it would reserve 50.0 instead of 100 MiB with roundup_power2_divisions:8."; d.Sentence != want {
		t.Error(d.Sentence)
	}
}

func TestASmallSimulatedSavingIsALeverButNoSentence(t *testing.T) {
	for peak, said := range map[int64]bool{94: true, 96: false} {
		d := OOMDevice{Sentence: "Why."}
		d.Simulate(simulationOf(0,
			simulatedOf("roundup_power2_divisions", "roundup_power2_divisions:8", peak, 0, 0)), timeline.IEC)
		if got := strings.Contains(d.Sentence, "Simulated"); got != said {
			t.Errorf("%d of 100 MiB: %q", peak, d.Sentence)
		}
		if len(d.Levers) != 1 {
			t.Errorf("%d of 100 MiB: %d levers", peak, len(d.Levers))
		}
	}
}

func TestNoLeverFitsIfTheRecordingCannotBePlayed(t *testing.T) {
	d := offered(true)
	d.advise("With expandable segments the request would have fit: it frees 5 MiB.")
	d.Simulate(&Simulation{Reason: "why not"}, timeline.IEC)
	same := names(d) == names(offered(true)) && *d.Levers[1].Saves == 5*mib
	if !same || d.Sentence != "Why." {
		t.Errorf("%+v", d)
	}
	for _, l := range d.Levers {
		if l.Fits != nil || l.Tried.Outcome != NotTried || l.Tried.Reason != "why not" {
			t.Errorf("%+v", l)
		}
	}
	var out strings.Builder
	if err := (&OOM{Found: true, Devices: []OOMDevice{*d}}).WriteText(&out, Options{}); err != nil {
		t.Fatal(err)
	}
	if s := out.String(); strings.Contains(s, "fit") || strings.Contains(s, "served") ||
		!strings.Contains(s, "expandable segments: saves ~5.00 MiB, not tried\n") ||
		!strings.Contains(s, "Savings are estimates") {
		t.Error(s)
	}
}

func TestSettingsAreNotRecommendedNextToAFaultOfTheTraining(t *testing.T) {
	for kind, want := range map[string]string{
		"fragmentation": "Why. Simulated, the same run fits with expandable_segments:True, " +
			"20.0 MiB to spare.",
		"kept_graph": "Why.",
	} {
		d := offered(true)
		d.Causes = []Cause{{Kind: kind, Main: true}, {Kind: "fragmentation"}}
		expandable := simulatedOf("expandable_segments", "expandable_segments:True", 70, 60, 80)
		d.Simulate(simulationOf(80, expandable), timeline.IEC)
		if d.Sentence != want {
			t.Errorf("%s: %s", kind, d.Sentence)
		}
	}
}

func TestNextToAFaultOnlyLeversThatFinishAreNamed(t *testing.T) {
	for outcome, faulty := range map[string]string{
		Finishes: "Why. Tried a lever: this step would have finished, peak 1 B allocated, " +
			"2 B of 3 B reserved.",
		Postpones:     "Why.",
		ServesRequest: "Why.",
		DoesNotHelp:   "Why.",
		NotTried:      "Why.",
	} {
		for _, kind := range []string{"kept_graph", "capacity"} {
			d := &OOMDevice{OOM: true, Sentence: "Why.", Causes: []Cause{{Kind: kind, Main: true}},
				Levers: []Lever{{Name: "a_lever", Tried: &Tried{Outcome: outcome, Steps: 2, Peak: known(1),
					PeakReserved: known(2), Capacity: known(3)}}}}
			d.advise("With it, fine.")
			d.Rank()
			d.SayTried(timeline.IEC)
			if kind == "kept_graph" && d.Sentence != faulty || kind == "capacity" && d.Sentence == "Why." {
				t.Errorf("%s, %s: %s", kind, outcome, d.Sentence)
			}
			fits := d.Levers[0].Fits != nil && *d.Levers[0].Fits
			known := d.Levers[0].Fits != nil
			if fits != (outcome == Finishes) || known && outcome == NotTried {
				t.Errorf("%s: fits %t", outcome, fits)
			}
		}
	}
}

// The sentence calls a setting the biggest saving, by its holes, and the simulation finds less.
func TestTheBiggestSavingIsNotOneThatTheSimulationCorrects(t *testing.T) {
	half := []autopsy.Saving{{Lever: "micro_batch", Bytes: 40 * mib, Text: " Half."}}
	reserves := func(mib string) string {
		return " Simulated, it would reserve " + mib + " instead of 100 MiB with expandable_segments:True."
	}
	for _, c := range []struct {
		name   string
		peak   int64 // with the setting, of 100 MiB
		others []autopsy.Saving
		want   string
		named  string
	}{
		{"nothing else is known to save", 90, nil,
			"Why. The peak." + reserves("90.0"),
			"expandable_segments"},
		{"another saves more", 90, half,
			"Why. Half. The peak." + reserves("90.0"), "micro_batch expandable_segments"},
		{"another saves less", 55, half,
			"Why. The peak." + reserves("55.0"),
			"expandable_segments"},
		{"the setting saves nothing", 100, half,
			"Why. Half. The peak.", "micro_batch"},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := offered(false)
			d.savings = append([]autopsy.Saving{{Lever: "expandable_segments", Bytes: 60 * mib,
				Text: " Pages."}}, c.others...)
			d.Named = []string{"expandable_segments"}
			d.advise("Pages. The peak.")
			d.Simulate(simulationOf(0, simulatedOf("expandable_segments", "expandable_segments:True", c.peak,
				60, 0)), timeline.IEC)
			if named := strings.Join(d.Named, " "); d.Sentence != c.want || named != c.named {
				t.Errorf("%q, which names %s", d.Sentence, named)
			}
		})
	}
}
