package oom

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	tea "charm.land/bubbletea/v2"

	"github.com/gmemtop/gmemtop/replay/whatif"
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/autopsy"
	"github.com/gmemtop/gmemtop/timeline/report"
	"github.com/gmemtop/gmemtop/tui/canvas"
	"github.com/gmemtop/gmemtop/tui/leaf"
	"github.com/gmemtop/gmemtop/tui/theme"
)

// What an autopsy proposes is an estimate until it is tried: the recorded run is played again with each lever
// on an emulated allocator. That takes up to some seconds, off the event loop; until then nothing is said to
// fit. Leaving the view gives it up.

// lever is a row of the table: something to do, and what trying it showed.
type lever struct {
	name, text, command string
	title               string // its name for people
	named               bool   // the sentence on top tells the reader to try it
	saves               string // "" where it is not known
	verdict             verdict
	came                string // what came of it, a sentence
}

// verdict is what trying a lever showed.
type verdict uint8

const (
	untried verdict = iota // nothing failed: there is nothing to try
	trying
	notTried
	finishes
	serves
	together // with another one, but not alone
	postpones
	useless
)

// look is a verdict in a word or three, and its style.
func (l *lever) look(th *theme.Theme) (text string, st canvas.Style) {
	switch l.verdict {
	case trying:
		return "trying…", th.Dim
	case finishes:
		return "✓ finishes", th.Good
	case serves:
		return "✓ request served", th.Good
	case together:
		return "✓ two together", th.Good
	case postpones:
		return "~ postpones", th.Warn
	case useless:
		return "✗ does not help", th.Bad
	}
	return "– not tried", th.Faint
}

// try has the levers of an out-of-memory tried, unless they are already.
func (v *view) try(s *leaf.State) tea.Cmd {
	a := v.known(s)
	if a == nil || !a.OOM || !v.front {
		return nil
	}
	k, said := asked{s.Device, s.Units}, make(chan trialMsg, 1)
	ask := v.trial.Ask(k, func(ctx context.Context) (*report.OOMDevice, error) {
		defer close(said)
		t := k.device.Timeline()
		only := report.Options{Units: k.units, Devices: report.OnlyDevice(k.device.Info)}
		r, err := report.NewOOM(ctx, t, only)
		if err != nil {
			return nil, err
		}
		if len(r.Devices) == 0 {
			return nil, errors.New("the recording has no such device")
		}
		// The report says what was skipped.
		err = whatif.Explain(ctx, t, r, k.units, whatif.Listener{Trying: func(n, of int) {
			select { // only the newest counts, and nobody may be listening any more
			case <-said:
			default:
			}
			said <- trialMsg{n: n, of: of, said: said}
		}})
		return &r.Devices[0], err
	})
	if ask == nil {
		return nil
	}
	v.at = trialMsg{said: said}
	return tea.Batch(ask, v.at.next)
}

// trialMsg says that the nth of some levers is being tried.
type trialMsg struct {
	n, of int
	said  chan trialMsg // where the next one comes from
}

// next waits for the next message, nil for none.
func (m trialMsg) next() tea.Msg {
	if n, ok := <-m.said; ok {
		return n
	}
	return nil
}

// heard takes the progress of a trial, unless that was abandoned.
func (v *view) heard(m trialMsg) tea.Cmd {
	if m.said != v.at.said {
		return nil
	}
	v.at = m
	return m.next
}

// tried returns what came of trying the levers of the device in view, nil while that is not known.
func (v *view) tried(s *leaf.State) *report.OOMDevice {
	if k, row, ok := v.trial.Value(); ok && k == (asked{s.Device, s.Units}) {
		return row
	}
	return nil
}

// sentence is the answer on top. Its statements about levers come from trials.
func (v *view) sentence(s *leaf.State, a *autopsy.Result) string {
	if row := v.tried(s); row != nil {
		return row.Sentence
	}
	if !a.OOM {
		if !a.Inferred { // the table below shows what held it
			s, _, _ := strings.Cut(a.Sentence, " Largest holder: ")
			return s
		}
		return a.Sentence
	}
	sentence := strings.TrimSuffix(a.Sentence, a.Advice)
	if v.trial.Pending() && v.at.n > 0 {
		sentence += fmt.Sprintf(" Trying %d of %d…", v.at.n, v.at.of)
	}
	return sentence
}

// leversFound are the levers of an autopsy, before they are tried; err says why they cannot be.
func leversFound(a *autopsy.Result, err error, u timeline.Units) []lever {
	list := make([]lever, len(a.Levers))
	said := !a.OOM || a.Advice == "" // the advice about levers is left out until they are tried
	for i, l := range a.Levers {
		list[i] = lever{name: l.Name, title: autopsy.LeverWords(l.Name, l.Parts), text: l.Text,
			command: l.Command, named: said && slices.Contains(a.Named, l.Name)}
		if saves, ok := l.Saves.Value(); ok {
			list[i].saves = estimate(l.Exactness.String()) + u.Bytes(saves)
		}
		switch {
		case !a.OOM:
		case err != nil:
			list[i].verdict, list[i].came = notTried, "Not tried: "+err.Error()+"."
		default:
			list[i].verdict, list[i].came = trying, "Trying it on the recorded run…"
		}
	}
	return list
}

// leversTried are the levers of a report whose levers were tried, the surest first.
func leversTried(row *report.OOMDevice, u timeline.Units) []lever {
	list := make([]lever, len(row.Levers))
	for i := range row.Levers {
		l := &row.Levers[i]
		list[i] = lever{name: l.Name, title: l.Words(), text: l.Text, command: l.Command,
			named: slices.Contains(row.Named, l.Name)}
		switch {
		case l.Saves != nil:
			list[i].saves = estimate(l.Exactness) + u.Bytes(*l.Saves)
		case l.Frees != nil: // the rest of the step may need some of it
			list[i].saves = "(" + u.Bytes(*l.Frees) + ")"
		}
		if l.Tried != nil {
			list[i].verdict, list[i].came = cameOf(l.Tried, u)
		}
		if l.Frees != nil {
			list[i].came += fmt.Sprintf(" It frees %s%s by that point.", estimate(l.Exactness),
				u.Bytes(*l.Frees))
		}
		if with := partner(row.Together, l.Name); with != "" {
			list[i].verdict = together
			list[i].came = "On its own it is not enough: this step still runs out. " +
				"" + cameTogether(row, with, u)
		}
	}
	// what the sentence names is what the reader looks for
	slices.SortStableFunc(list, func(x, y lever) int { return turn(&x) - turn(&y) })
	return list
}

func turn(l *lever) int {
	if l.named {
		return 0
	}
	return 1
}

// partner is the lever that one was tried together with, "" for none.
func partner(t *report.Together, name string) string {
	if t == nil || !slices.Contains(t.Levers, name) {
		return ""
	}
	for _, other := range t.Levers {
		if other != name {
			return other
		}
	}
	return ""
}

// cameTogether is the outcome of trying a lever together with another one.
func cameTogether(row *report.OOMDevice, with string, u timeline.Units) string {
	_, came := cameOf(&row.Together.Tried, u)
	return "Together with " + row.Words(with) + ": " + strings.TrimPrefix(came, "Tried: ")
}

// cameOf says what came of trying a lever.
func cameOf(t *report.Tried, u timeline.Units) (verdict, string) {
	held := ""
	if t.PeakReserved != nil && t.Capacity != nil {
		held = fmt.Sprintf("%s of %s reserved", u.Bytes(*t.PeakReserved), u.Bytes(*t.Capacity))
	}
	switch t.Outcome {
	case report.Finishes:
		return finishes, fmt.Sprintf("Tried: this step finishes, and so do the next ones; %s at most.", held)
	case report.ServesRequest:
		return serves, fmt.Sprintf("Tried: the allocation succeeds, %s; the rest of the step is not "+
			"recorded.",
			held)
	case report.Postpones:
		return postpones, fmt.Sprintf("Tried: this step finishes; it runs out again after about %s.",
			timeline.Counted(int(t.Steps), "step"))
	case report.DoesNotHelp:
		return useless, "Tried: this step still runs out" + t.Also() + "."
	}
	return notTried, "Not tried: " + t.Reason + "."
}

// estimate is the sign that goes before a figure of an exactness.
func estimate(exactness string) string {
	switch exactness {
	case timeline.Inferred.String():
		return "~"
	case timeline.LowerBound.String():
		return "≥"
	}
	return ""
}
