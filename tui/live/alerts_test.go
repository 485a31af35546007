package live

import (
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/timeline/steps"
	"github.com/gmemtop/gmemtop/traces/maybe"
	"github.com/gmemtop/gmemtop/tui/leaf"
)

// with changes a look's last step and updates its report.
func with(l Look, change func(s *Step)) Look {
	change(&l.Steps[len(l.Steps)-1])
	var bytes, took []maybe.Int
	for _, s := range l.Steps {
		bytes, took = append(bytes, s.Bytes), append(took, s.Duration)
	}
	l.Report = steps.Watch(bytes, took, 0, 0)
	l.Alerts = AlertsOf(l.Steps, &l.Report, nil)
	return l
}

func TestUnseenAlertsAreNews(t *testing.T) {
	slow := func(ns int64) func(*Step) { return func(s *Step) { s.Duration = maybe.Known(ns) } }
	sc, v, _ := open(t, running(t, 50))
	say := func(when string, l Look, want string) {
		t.Helper()
		v.Take(l)
		if got := v.Alert(sc.State.Units); !strings.Contains(got, want) || want == "" && got != "" {
			t.Errorf("%s: %q, wanted %q", when, got, want)
		}
	}
	look := func() { sc.Send(leaf.ChangedMsg{}) } // as the root does with the view in front
	say("a steady job", running(t, 51), "")
	say("a slow step", with(running(t, 52), slow(300e6)), "step 51 took 300 ms")
	say("it is still unseen when others follow", running(t, 53), "step 51 took 300 ms")
	look()
	say("it was seen", with(running(t, 52), slow(300e6)), "")
	say("another as slow", with(running(t, 54), slow(310e6)), "")
	say("one that is slower by far", with(running(t, 55), slow(900e6)), "step 54 took 900 ms")
	say("something worse goes first", with(running(t, 56), func(s *Step) {
		s.OOMs = 1
	}), "ran out of memory once (and 1 more)")
	for want, a := range map[string]Alert{
		"leak: +2.00 MiB a step":    {Kind: Leak, Size: 2 << 20},
		"allocator retried 3 times": {Kind: Retry, Size: 3},
	} {
		if got := a.brief(sc.State.Units); got != want {
			t.Errorf("the status line says %q, not %q", got, want)
		}
	}
	look()
	say("all was seen", running(t, 57), "")
	over := running(t, 58)
	over.State, over.Word, over.Failed = Ended, "exit code 1", true
	say("the end", over, "the job ended: exit code 1")
	if !v.Grave() {
		t.Error("a failed job shows a warning")
	}
	look()
	say("it is told once", over, "")
}

func TestAnAlertNamesItsRank(t *testing.T) {
	sc, v, _ := open(t, running(t, 50))
	l := ranked(running(t, 50), 5)
	v.Take(l)
	if got := v.Alert(sc.State.Units); got != "rank 4 ended: RuntimeError: boom" {
		t.Errorf("%q", got)
	}
}

func TestExcusedStepsDoNotAlert(t *testing.T) {
	l := with(running(t, 52), func(s *Step) { s.Duration = maybe.Known(300e6) })
	if got := AlertsOf(l.Steps, &l.Report, func(step int64) bool { return step == 51 }); len(got) > 0 {
		t.Errorf("%+v", got)
	}
}

func TestStepsThatTryAPlanDoNotAlert(t *testing.T) {
	change := func(trial bool) Look {
		return with(running(t, 52), func(s *Step) {
			s.Duration, s.Bytes, s.Trial = maybe.Known(300e6), maybe.Known(9<<30), trial
		})
	}
	if l := change(true); len(l.Alerts) > 0 {
		t.Errorf("%+v", l.Alerts)
	}
	if l := change(false); len(l.Alerts) != 2 {
		t.Errorf("of the same step without a trial: %+v", l.Alerts)
	}
}

func TestTheSentenceSaysThatNoStepsArrive(t *testing.T) {
	sc, v, _ := open(t, running(t, 50))
	l := running(t, 51)
	l.Silence = "no step for 20.0 s"
	v.Take(l)
	if got := v.look.sentence(sc.State.Units); !strings.Contains(got,
		" is running, but there was no step for 20.0 s; step 50, ") {
		t.Error(got)
	}
	l.State, l.Word = Ended, "exit code 1"
	v.Take(l)
	if got := v.look.sentence(sc.State.Units); strings.Contains(got, "no step for") {
		t.Error(got)
	}
}
