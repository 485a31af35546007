package tui

import (
	"fmt"
	"runtime/debug"
	"slices"
	"strings"

	tea "charm.land/bubbletea/v2"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/autopsy"
	"github.com/gmemtop/gmemtop/timeline/steps"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/tui/leaf"
)

// recordings are what is open and which part is in view: files, a run, or a captured step of a job.
type recordings struct {
	*leaf.Open
}

// analysedMsg says that a device's iterations, phases and headline are computed, or that computing them
// failed by a bug of ours.
type analysedMsg struct {
	device   *timeline.Device
	headline string
	ranOut   bool
	noLines  bool
	fault    any
	stack    []byte
}

// take shows the result of a load: beside what is open, or in its place.
func (r *recordings) take(l Loaded, beside bool) {
	if beside {
		r.Timelines = append(r.Timelines, l.Timelines...)
	} else {
		r.Timelines, r.Run = l.Timelines, l.Run
	}
	r.show(nil)
	if len(l.Timelines) > 0 {
		r.show(l.Timelines[0])
	}
	if l.Device != nil {
		r.bring(l.Device)
	}
}

// show brings a timeline to the front with its main device; nil is none.
func (r *recordings) show(t *timeline.Timeline) {
	r.Timeline = t
	if t == nil {
		r.bring(nil)
		return
	}
	r.bring(t.Main())
}

// bring brings a device to the front; nil is none.
func (r *recordings) bring(d *timeline.Device) {
	r.Device, r.Analysed, r.Headline, r.RanOut, r.NoLines = d, false, "", false, false
	if d != nil {
		r.Timeline = d.Timeline()
	}
}

// step shows a captured step of the watched job, or that there is none.
func (r *recordings) step(msg stepMsg) {
	r.Timelines, r.UnderPlan, r.Basis, r.BasisName = nil, msg.underPlan, msg.basis, msg.basisName
	r.Step, r.Before, r.BeforeName = msg.name, msg.before, msg.beforeName
	if msg.timeline != nil {
		r.Timelines = []*timeline.Timeline{msg.timeline}
	}
	if len(msg.beside) > 0 {
		r.Timelines = msg.beside
	}
	r.show(msg.timeline)
}

// at returns what was read from a path, nil if it is not open.
func (r *recordings) at(path string) *timeline.Timeline {
	for _, t := range r.Timelines {
		if t.Trace.Source.Path == path {
			return t
		}
	}
	return nil
}

// nothing reports whether there is nothing to look at.
func (r *recordings) nothing() bool { return r.Timeline == nil && r.Run == nil }

// analyse computes what the views need and what takes longer than a frame.
func (r *recordings) analyse(u timeline.Units) tea.Cmd {
	d := r.Device
	if d == nil {
		return nil
	}
	return func() (msg tea.Msg) {
		defer func() {
			if fault := recover(); fault != nil {
				msg = analysedMsg{device: d, fault: fault, stack: debug.Stack()}
			}
		}()
		steps.Of(d)
		steps.Phases(d)
		steps.Parts(d)
		return analysedMsg{device: d, headline: autopsy.Headline(d, u), ranOut: autopsy.RanOut(d),
			noLines: lineless(d.Timeline().Trace)}
	}
}

// lineless reports whether a capture of a job holds no line of code at all: an op by op one has the names of
// ops and modules instead.
func lineless(t *traces.Trace) bool {
	return (t.Source.Format == "capture" || t.Source.Format == "described") &&
		!slices.ContainsFunc(t.Frames, func(f traces.Frame) bool { return f.Line > 0 })
}

// analysed takes the result of analyse, and reports whether it belongs to the device in view.
func (r *recordings) analysed(msg analysedMsg) bool {
	if msg.device != r.Device || msg.fault != nil {
		return false
	}
	r.Analysed, r.Headline, r.RanOut, r.NoLines = true, msg.headline, msg.ranOut, msg.noLines
	return true
}

// warning says what the recording in view lost; "" for nothing.
func (r *recordings) warning() string {
	if r.Timeline == nil {
		return ""
	}
	var worst *traces.Loss
	more := 0
	losses := r.Timeline.Trace.Losses
	for i := range losses {
		l := &losses[i]
		if l.Severity == traces.Info {
			continue
		}
		if worst == nil || l.Severity > worst.Severity {
			worst = l
		}
		more++
	}
	if worst == nil {
		return ""
	}
	text := strings.ReplaceAll(worst.Name, "_", " ")
	if worst.Count != 1 { // names are plurals
		text = leaf.Count(worst.Count) + " " + text
	}
	if worst.Detail != "" {
		text += ": " + worst.Detail
	}
	if more > 1 {
		text += fmt.Sprintf(" (and %d more)", more-1)
	}
	return text
}
