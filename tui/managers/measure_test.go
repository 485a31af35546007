package managers_test

import (
	"strings"
	"testing"

	tea "charm.land/bubbletea/v2"

	"github.com/gmemtop/gmemtop/tui/leaf"
	"github.com/gmemtop/gmemtop/tui/managers"
	"github.com/gmemtop/gmemtop/tui/managers/plannertest"
	"github.com/gmemtop/gmemtop/tui/viewtest"
)

func TestADeviceMeasuresThePlanThatIsOnAndIsShownNextToTheSimulator(t *testing.T) {
	f := &plannertest.Planner{Broken: "packed"}
	sc, v := show(t, f)
	sc.Press("-", "-", "-", "C")
	choose(t, sc, "cuda:0")
	before, _ := f.Asked()
	sc.Press("x")
	if after, _ := f.Asked(); len(after) != len(before) {
		t.Error("x plans again though a device was chosen")
	}
	sc.Golden("measured")
	if text := v.Headline(sc.State); !strings.Contains(text, " measured on cuda:0 (predicted ") {
		t.Errorf("the sentence is %q", text)
	}
	for range len(v.Order()) {
		status := v.Status(sc.State)
		switch {
		case strings.HasPrefix(status, "packed"):
			if !strings.Contains(status, "the device found wrong bytes") {
				t.Errorf("the status is %q", status)
			}
		case strings.HasPrefix(status, "ours"):
			if !strings.Contains(status, "every byte checked") || !strings.Contains(status, "simulated") {
				t.Errorf("the status is %q", status)
			}
		}
		sc.Press("down")
	}
	sc.Press("-")
	if text := v.Headline(sc.State); strings.Contains(text, "Measured") {
		t.Errorf("another budget shows what was measured under the old one: %q", text)
	}
	sc.Press("+")
	sc.Press("R")
	if after, _ := f.Asked(); len(after) == len(before) {
		t.Error("R does not plan again")
	}
}

func TestMeasuringIsStoppedByEscAndByPlanning(t *testing.T) {
	f := &plannertest.Planner{Busy: make(chan struct{})}
	sc, v := show(t, f)
	sc.Press("C")
	choose(t, sc, "cuda:0")
	press := func(k string) (next []tea.Cmd) { return flat(v.Update(sc.State, viewtest.Key(k))) }
	news := press("x")
	if len(news) != 1 || !v.Measuring() {
		t.Fatalf("x begins %d commands", len(news))
	}
	f.Busy <- struct{}{}
	for range 10 { // what comes at once comes together, so that the number of messages is not known
		next := flat(v.Update(sc.State, news[0]()))
		if strings.Contains(v.Headline(sc.State), "Running on cuda:0: 1 of 5 plans") {
			break
		}
		news = next
	}
	if text := v.Headline(sc.State); !strings.Contains(text, "Running on cuda:0: 1 of 5 plans, ") {
		t.Errorf("the sentence is %q", text)
	}
	press("esc")
	if text := v.Headline(sc.State); strings.Contains(text, "Running on") || v.Measuring() {
		t.Errorf("esc does not stop measuring: %q", text)
	}
	press("x")
	if !v.Measuring() {
		t.Fatal("x does not go on")
	}
	press("-")
	sc.Send(managers.Settled(v))
	if v.Measuring() {
		t.Error("a device is measured while managers plan")
	}
}

func TestADeviceThatCannotBeUsedSaysWhy(t *testing.T) {
	sc, _ := show(t, &plannertest.Planner{})
	sc.Press("C")
	for _, msg := range sc.Sent {
		if pick, ok := msg.(leaf.PickMsg); ok {
			for _, c := range pick.Choices {
				if strings.TrimSpace(c.Title) == "cuda:1" && c.Off &&
					strings.Contains(c.Detail, "accepts no further process") {
					return
				}
			}
		}
	}
	t.Errorf("cuda:1 is not refused with its reason in %v", sc.Sent)
}
