// Package diff is the view of two recordings beside each other: which peak is higher, by which categories and
// call sites, and why.
package diff

import (
	"context"
	"fmt"
	"strings"

	"charm.land/bubbles/v2/key"
	tea "charm.land/bubbletea/v2"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/runs"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/tui/canvas"
	"github.com/gmemtop/gmemtop/tui/curves"
	"github.com/gmemtop/gmemtop/tui/leaf"
	"github.com/gmemtop/gmemtop/tui/table"
)

// view compares two timelines. It implements leaf.View.
type view struct {
	diff   leaf.Query[pair, *runs.Diff]
	shapes leaf.Query[shapesKey, *shapes]
	of     pair

	swapped bool
	atPeak  bool // curves are aligned at their peaks instead of their starts
	sites   *table.Table
	keys    struct{ swap, align key.Binding }
}

type pair struct{ a, b *timeline.Device }

type shapesKey struct {
	pair   pair
	atPeak bool
}

// New returns the view.
func New() leaf.View {
	v := &view{sites: table.New(
		table.Column{Title: "A to B", Width: 10, Right: true},
		table.Column{Title: "A", Width: 6, Right: true, Drop: 2},
		table.Column{Title: "B", Width: 6, Right: true, Drop: 1},
		table.Column{Title: "blocks", Width: 13, Right: true, Drop: 3},
		table.Column{Title: "why", Width: 26, Max: 44},
		table.Column{Title: "call site", Width: 18, Max: 120},
	)}
	v.keys.swap = key.NewBinding(key.WithKeys("S"), key.WithHelp("S", "swap A and B"))
	v.keys.align = key.NewBinding(key.WithKeys("a"), key.WithHelp("a", "align at the peaks"))
	return v
}

// ID implements leaf.View.
func (v *view) ID() leaf.ID { return leaf.Diff }

// Name implements leaf.View.
func (v *view) Name() string { return "Diff" }

// Available implements leaf.View.
func (v *view) Available(s *leaf.State) (bool, string) {
	if p := v.pair(s); p.a == nil || p.b == nil {
		if s.Device != nil && s.Device.Len() < 2 {
			return false, "Only one recording is open, and it shows a single moment. To compare two " +
				"recordings: `gmemtop replay A B`"
		}
		if s.UnderPlan {
			return false, "This step ran under a plan, and no step without one is captured to compare it " +
				"with. To compare two moments of this step: go to the first, press c, go to the other, " +
				"press d."
		}
		if s.Step != "" {
			return false, "There is no earlier captured step to compare this one with. r in Live captures " +
				"another, F shows the newest. To compare two moments of this step: go to the first, press " +
				"c, go to the other, press d."
		}
		return false, "Only one recording is open. To compare two steps or moments of it: go to the first, " +
			"press c, go to the other, press d ([ and ] go from step to step). To compare two recordings " +
			"at their peaks: `gmemtop replay A B`"
	}
	return true, ""
}

// pair returns the devices to compare: those of the first two timelines or, for a step that ran under a plan,
// the step without the plan and the step with it; for another step of a job, the one captured before it.
func (v *view) pair(s *leaf.State) pair {
	var p pair
	switch {
	case s.UnderPlan && s.Basis != nil && s.Timeline != nil:
		p = pair{s.Basis.Main(), s.Timeline.Main()}
	case len(s.Timelines) < 2 && s.Before != nil && s.Timeline != nil:
		p = pair{s.Before.Main(), s.Timeline.Main()}
	case len(s.Timelines) < 2:
		return pair{}
	default:
		p = pair{s.Timelines[0].Main(), s.Timelines[1].Main()}
	}
	if v.swapped {
		p.a, p.b = p.b, p.a
	}
	return p
}

// Update implements leaf.View.
func (v *view) Update(s *leaf.State, msg tea.Msg) tea.Cmd {
	if v.diff.Take(msg) {
		v.settle(s)
		return nil
	}
	if v.shapes.Take(msg) {
		return nil
	}
	switch msg := msg.(type) {
	case leaf.ChangedMsg:
		return v.ask(s)
	case tea.KeyPressMsg:
		switch {
		case key.Matches(msg, v.keys.swap):
			v.swapped = !v.swapped
			return v.ask(s)
		case key.Matches(msg, v.keys.align):
			v.atPeak = !v.atPeak
			return v.ask(s)
		}
	}
	act := v.sites.Update(msg)
	if x := v.known(s); x != nil && act.Row >= 0 {
		switch act.Kind {
		case table.Moved:
			return v.choose(s, x, act.Row)
		case table.Opened:
			return v.open(s, x, act.Row)
		}
	}
	return nil
}

func (v *view) ask(s *leaf.State) tea.Cmd {
	p := v.pair(s)
	if p.a == nil || p.b == nil {
		return nil
	}
	k := shapesKey{p, v.atPeak}
	return tea.Batch(
		v.diff.Ask(p, func(ctx context.Context) (*runs.Diff, error) { return runs.Compare(ctx, p.a, p.b) }),
		v.shapes.Ask(k, func(context.Context) (*shapes, error) { return shapesOf(k), nil }),
	)
}

func (v *view) settle(s *leaf.State) {
	p, x, ok := v.diff.Value()
	if !ok || p != v.pair(s) {
		return
	}
	v.of = p
	v.sites.SetRows(len(x.Sites))
	v.sites.Select(0)
}

// known returns the difference of the pair in view, nil until it is there.
func (v *view) known(s *leaf.State) *runs.Diff {
	if p, x, ok := v.diff.Value(); ok && p == v.pair(s) && p == v.of {
		return x
	}
	return nil
}

// side returns the device of the pair that other views show, and the row's stack in it.
func (v *view) side(s *leaf.State, r *runs.DiffRow) (d *timeline.Device, id traces.StackID) {
	switch s.Device {
	case v.of.a:
		return v.of.a, r.StackA
	case v.of.b:
		return v.of.b, r.StackB
	}
	return nil, traces.NoStack
}

// moment returns the moment of a device of the pair that is compared, mostly its peak.
func (v *view) moment(d *timeline.Device) timeline.Moment {
	switch _, x, ok := v.diff.Value(); {
	case ok && d == x.A:
		return x.SideA.At
	case ok && d == x.B:
		return x.SideB.At
	}
	return d.Totals.PeakAt
}

// choose selects the largest block of a row at the peak of the timeline that is in view.
func (v *view) choose(s *leaf.State, x *runs.Diff, row int) tea.Cmd {
	d, id := v.side(s, &x.Sites[row])
	if d == nil || id == traces.NoStack {
		return nil
	}
	best := timeline.NoAlloc
	for _, a := range d.LiveAt(v.moment(d), nil) {
		if d.Origin(a) == id && (best == timeline.NoAlloc || d.Allocs.Rounded[a] > d.Allocs.Rounded[best]) {
			best = a
		}
	}
	if best == timeline.NoAlloc || best == s.Selected {
		return nil
	}
	return leaf.Send(leaf.SelectMsg{Alloc: best})
}

// open shows the row's blocks at the peak of the recording in which it holds more.
func (v *view) open(s *leaf.State, x *runs.Diff, row int) tea.Cmd {
	r, d := &x.Sites[row], v.of.b
	if r.A > r.B {
		d = v.of.a
	}
	var cmds []tea.Cmd
	if d != s.Device {
		cmds = append(cmds, leaf.Send(leaf.TimelineMsg{Timeline: d.Timeline()}))
	}
	return tea.Sequence(append(cmds, leaf.Send(leaf.CursorMsg{To: v.moment(d)}),
		leaf.Send(leaf.ShowMsg{View: leaf.Peak}))...)
}

// Bindings implements leaf.View.
func (v *view) Bindings(s *leaf.State) []key.Binding {
	if v.known(s) == nil {
		return nil
	}
	align := v.keys.align
	if v.atPeak {
		align.SetHelp("a", "align at the starts")
	}
	list := v.sites.Bindings("show its peak")
	at := min(2, len(list))
	return append(list[:at:at], append([]key.Binding{v.keys.swap, align}, list[at:]...)...)
}

// Status implements leaf.View.
func (v *view) Status(s *leaf.State) string {
	x, row := v.known(s), v.sites.Selected()
	if x == nil || row < 0 {
		return ""
	}
	r := &x.Sites[row]
	in := func(bytes int64, blocks int) string {
		return s.Units.Bytes(bytes) + " in " + timeline.Counted(blocks, "block")
	}
	switch {
	case r.BlocksB == 0:
		return fmt.Sprintf("%s: was %s · %s", r.Cause, in(r.A, r.BlocksA), r.Name)
	case r.BlocksA == 0:
		return fmt.Sprintf("%s: %s · %s", r.Cause, in(r.B, r.BlocksB), r.Name)
	}
	return fmt.Sprintf("%s: %s, then %s · %s", r.Cause, in(r.A, r.BlocksA), in(r.B, r.BlocksB), r.Name)
}

// Copy implements leaf.Copier.
func (v *view) Copy(s *leaf.State) (text, what string) {
	if x := v.known(s); x != nil {
		return answer(s, x), "the answer"
	}
	return "", ""
}

// answer is the sentence on top, with the note on what was compared if there is one.
func answer(s *leaf.State, x *runs.Diff) string {
	return strings.TrimSpace(x.Sentence(s.Units) + " " + strings.TrimSpace(x.Note()+" "+x.Limits()))
}

// shapes are the two curves on one axis of time.
type shapes struct {
	a, b         []int64
	span, origin int64
	events       bool
}

// shapesOf samples both recordings on one axis that begins with the earlier start or, aligned at the peaks,
// has both peaks at its origin. If either has no clock, both count events.
func shapesOf(k shapesKey) *shapes {
	s := &shapes{events: !clock(k.pair.a) || !clock(k.pair.b)}
	axis := timeline.AxisTime
	if s.events {
		axis = timeline.AxisEvents
	}
	wa, wb := k.pair.a.Full(axis), k.pair.b.Full(axis)
	pa, pb := wa.From, wb.From
	if k.atPeak {
		pa, pb = leaf.Position(k.pair.a, axis, k.pair.a.Totals.PeakAt),
			leaf.Position(k.pair.b, axis, k.pair.b.Totals.PeakAt)
	}
	left, right := max(pa-wa.From, pb-wb.From), max(wa.To-pa, wb.To-pb)
	s.origin, s.span = left, max(left+right, 1)
	s.a = sample(k.pair.a, wa, pa, s)
	s.b = sample(k.pair.b, wb, pb, s)
	return s
}

func clock(d *timeline.Device) bool { return d.Timeline().Trace.Clock.HasTime }

// sample places a recording's curve on the axis, with position at on the origin.
func sample(d *timeline.Device, w timeline.Window, at int64, s *shapes) []int64 {
	scale := curves.Samples / float64(s.span)
	return curves.Sample(d, d.Allocated, w, int(float64(s.origin-(at-w.From))*scale+0.5),
		int(float64(w.To-w.From)*scale+0.5))
}

// mostName is how much of a file's name is shown.
const mostName = 36

// names labels both recordings in w cells each.
func names(s *leaf.State, p pair, w int) (a, b string) {
	room := min(max(w-len("A "), len("….pickle")), mostName)
	name := func(d *timeline.Device) string {
		switch t := d.Timeline(); {
		case s.UnderPlan && t == s.Basis:
			return s.BasisName
		case s.UnderPlan && t == s.Timeline:
			return "under a plan"
		case s.Before != nil && t == s.Before:
			return s.BeforeName
		case s.Step != "" && len(s.Timelines) < 2 && t == s.Timeline:
			return s.Step
		case t.Trace.Source.Path == "" && t.Trace.Process.Rank.IsKnown(): // captured, not opened
			return "rank " + t.Trace.Process.Rank.String()
		default:
			return canvas.TruncateLeft(leaf.Base(t.Trace.Source.Path), room)
		}
	}
	return "A " + name(p.a), "B " + name(p.b)
}
