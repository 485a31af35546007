// Package timelineview is the active memory timeline: every block a coloured band, time or event index on x,
// bytes on y, stacked as memory_viz stacks them. It zooms and pans both ways. Bands too small to draw
// separately are merged, and a merged band opens.
package timelineview

import (
	"context"
	"fmt"
	"slices"

	"charm.land/bubbles/v2/key"
	tea "charm.land/bubbletea/v2"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/traces/maybe"
	"github.com/gmemtop/gmemtop/tui/canvas"
	"github.com/gmemtop/gmemtop/tui/chart"
	"github.com/gmemtop/gmemtop/tui/leaf"
)

// View is the timeline of blocks.
type View struct {
	bands   leaf.Query[bandKey, [][]timeline.Band]
	pointer chart.Pointer
	frame   chart.Frame
	high    int64           // maximum of the window, what y shows when it is not zoomed
	seen    timeline.Window // the window that high was taken of
	device  *timeline.Device
	yLow    int64 // zoomed range of y; yHigh is 0 if it is not zoomed
	yHigh   int64
	merged  timeline.Band // the merged band that is selected; Count 0 for none
	only    maybe.Int     // the category that is brought out, by a click on the legend
	slabs   []canvas.Slab
	strips  strips
	keys    keyMap
}

type bandKey struct {
	device *timeline.Device
	window timeline.Window
	n      int
	small  int64 // smallest block drawn apart, bytes
}

// legendMsg brings a category out, or no longer: it is a click on its name in the legend.
type legendMsg struct{ category timeline.Category }

type keyMap struct{ pick, open, list, zoomY, panY, whole key.Binding }

// New returns the timeline view.
func New() *View {
	return &View{keys: keyMap{
		pick:  key.NewBinding(key.WithKeys("up", "down", "k", "j"), key.WithHelp("↑↓", "block above, below")),
		open:  key.NewBinding(key.WithKeys("enter"), key.WithHelp("enter", "zoom to it")),
		list:  key.NewBinding(key.WithKeys("a"), key.WithHelp("a", "list these blocks")),
		zoomY: key.NewBinding(key.WithKeys("v", "V"), key.WithHelp("v V", "zoom bytes")),
		panY: key.NewBinding(key.WithKeys("K", "J", "shift+up", "shift+down"),
			key.WithHelp("K J", "pan bytes")),
		whole: key.NewBinding(key.WithKeys("z"), key.WithHelp("z", "whole")),
	}}
}

// ID implements leaf.View.
func (v *View) ID() leaf.ID { return leaf.Timeline }

// Name implements leaf.View.
func (v *View) Name() string { return "Timeline" }

// Available implements leaf.View.
func (v *View) Available(s *leaf.State) (bool, string) {
	switch {
	case s.Device == nil:
		return false, leaf.NoDevice
	case s.Device.Len() == 0:
		return false, "This recording shows a single moment: it has blocks but no events, so " +
			"there is no time to draw. " +
			leaf.HowToRecord(s)
	}
	return true, ""
}

// Bindings implements leaf.View.
func (v *View) Bindings(s *leaf.State) []key.Binding {
	out := []key.Binding{v.keys.pick}
	if v.merged.Count > 0 || s.Selected != timeline.NoAlloc {
		out = append(out, v.keys.open)
	}
	if v.merged.Count > 0 {
		out = append(out, v.keys.list)
	}
	out = append(out, v.keys.zoomY)
	if v.yHigh > 0 {
		out = append(out, v.keys.panY)
	}
	if v.yHigh > 0 || s.Device != nil && s.Window != s.Device.Full(s.Window.Axis) {
		out = append(out, v.keys.whole)
	}
	return out
}

// Update implements leaf.View.
func (v *View) Update(s *leaf.State, msg tea.Msg) tea.Cmd {
	switch msg := msg.(type) {
	case leaf.ChangedMsg:
		v.settle(s)
		return v.ask(s)
	case tea.KeyPressMsg:
		return v.onKey(s, msg)
	case tea.MouseMsg:
		return v.onMouse(s, msg)
	case legendMsg:
		if was := v.only; was.IsKnown() && v.brings(msg.category) {
			v.only = maybe.Int{}
		} else {
			v.only = maybe.Known(int64(msg.category))
		}
	default:
		v.bands.Take(msg)
	}
	return nil
}

// brings reports whether blocks of a category are drawn in its colour: of one that is brought out, or if none
// is.
func (v *View) brings(cat timeline.Category) bool {
	only, ok := v.only.Value()
	return !ok || only == int64(cat)
}

// settle drops what belongs to another device or selection.
func (v *View) settle(s *leaf.State) {
	if v.device != s.Device {
		v.device, v.yLow, v.yHigh, v.merged = s.Device, 0, 0, timeline.Band{}
		v.only = maybe.Int{}
	}
	if v.merged.Count > 0 && v.merged.Alloc != s.Selected {
		v.merged = timeline.Band{}
	}
}

// fit returns the frame of the chart in a view of the given size.
func (v *View) fit(s *leaf.State) chart.Frame {
	p := place(s.Width, s.Height)
	if v.seen != s.Window || v.device != v.frame.Device || v.high == 0 {
		v.seen, v.high = s.Window, 1
		for _, c := range s.Device.Columns(s.Device.Allocated, s.Window, p.area.W, nil) {
			v.high = max(v.high, c.Max)
		}
	}
	f := chart.Frame{
		Device: s.Device, Area: p.area, Window: s.Window, High: v.high,
		Parts: v.strips.parts(s.Device, s.Analysed),
	}
	if v.yHigh > 0 { // what was zoomed to may lie above all that another window holds
		down := max(min(v.yHigh-v.high, v.yLow), 0)
		f.Low, f.High = v.yLow-down, v.yHigh-down
	}
	return f
}

// ask asks for the bands of the window at the chart's resolution: blocks of less than a sixteenth of a cell
// are merged (in a low chart even smaller ones, so that the makeup of many small ones still shows).
func (v *View) ask(s *leaf.State) tea.Cmd {
	if s.Device == nil || s.Width < 20 {
		return nil
	}
	v.frame = v.fit(s)
	f := &v.frame
	d, w, n := s.Device, s.Window, f.Area.W
	small := max((f.High-f.Low)/int64(max(f.Area.H*16, 1024)), 1)
	return v.bands.Ask(bandKey{d, w, n, small}, func(ctx context.Context) ([][]timeline.Band, error) {
		return timeline.Bands(ctx, d, w, n, small)
	})
}

func (v *View) onKey(s *leaf.State, msg tea.KeyPressMsg) tea.Cmd {
	switch {
	case key.Matches(msg, v.keys.pick):
		by := 1
		if k := msg.String(); k == "down" || k == "j" {
			by = -1
		}
		return v.pick(s, by)
	case key.Matches(msg, v.keys.open):
		return v.open(s)
	case key.Matches(msg, v.keys.list):
		return v.list(s)
	case key.Matches(msg, v.keys.zoomY):
		if msg.String() == "v" {
			return v.zoomY(s, v.focusBytes(s), 1, 2)
		}
		return v.zoomY(s, v.focusBytes(s), 2, 1)
	case key.Matches(msg, v.keys.panY):
		by := (v.yHigh - v.yLow) / 4
		if k := msg.String(); k == "J" || k == "shift+down" {
			by = -by
		}
		return v.setY(s, v.yLow+by, v.yHigh+by)
	case key.Matches(msg, v.keys.whole):
		v.yLow, v.yHigh = 0, 0
		return leaf.Send(leaf.WindowMsg{Window: s.Device.Full(s.Window.Axis)})
	}
	return nil
}

// column returns the bands drawn in a column of the plot, nil if unknown.
func (v *View) column(s *leaf.State, x int) []timeline.Band {
	k, bands, ok := v.bands.Value()
	if !ok || k.device != s.Device || len(bands) == 0 {
		return nil
	}
	if k.window != v.frame.Window || k.n != v.frame.Area.W {
		if k.window.Axis != v.frame.Window.Axis {
			return nil
		}
		x = int(float64(v.frame.Position(x)-k.window.From) / float64(leaf.Span(k.window)) * float64(
			len(bands)))
	}
	if x < 0 || x >= len(bands) {
		return nil
	}
	return bands[x]
}

// inView reports whether the cursor is within the part of the recording that is drawn: zooming and dragging
// with the mouse leave it where it is.
func inView(s *leaf.State) bool {
	at := leaf.Position(s.Device, s.Window.Axis, s.Cursor)
	return s.Window.From <= at && at <= s.Window.To
}

// cursorColumn returns the bands at the cursor, nil if it is not in view.
func (v *View) cursorColumn(s *leaf.State) []timeline.Band {
	if !inView(s) {
		return nil
	}
	x := v.frame.Column(leaf.Position(s.Device, s.Window.Axis, s.Cursor))
	return v.column(s, min(max(x, 0), v.frame.Area.W-1))
}

// pick selects the band above or below the selected one at the cursor; without a selection there, the
// largest. Bytes that are not in the recording cannot be selected.
func (v *View) pick(s *leaf.State, by int) tea.Cmd {
	bands := slices.DeleteFunc(slices.Clone(v.cursorColumn(s)), func(b timeline.Band) bool {
		return b.Alloc == timeline.NoAlloc
	})
	if len(bands) == 0 {
		return nil
	}
	at, largest := -1, 0
	for i, b := range bands {
		if b.Alloc == s.Selected {
			at = i
		}
		if b.Top-b.Bottom > bands[largest].Top-bands[largest].Bottom {
			largest = i
		}
	}
	if at < 0 {
		at = largest
	} else {
		at = min(max(at+by, 0), len(bands)-1)
	}
	return v.choose(s, bands[at])
}

// choose selects a band's block, and remembers a merged band. The zoomed range of bytes follows it.
func (v *View) choose(s *leaf.State, b timeline.Band) tea.Cmd {
	v.merged = timeline.Band{}
	if b.Count > 1 {
		v.merged = b
	}
	if v.yHigh > 0 && (b.Bottom >= v.yHigh || b.Top <= v.yLow) {
		span := v.yHigh - v.yLow
		v.yLow = max((b.Bottom+b.Top)/2-span/2, 0)
		v.yHigh = v.yLow + span
	}
	return leaf.Send(leaf.SelectMsg{Alloc: b.Alloc})
}

// open zooms to the selection: in bytes for a merged band, so that its blocks separate; in time for a block,
// so that its lifetime shows.
func (v *View) open(s *leaf.State) tea.Cmd {
	if b := v.merged; b.Count > 0 {
		pad := max((b.Top-b.Bottom)/10, 1)
		if (b.Top-b.Bottom)*10 > (v.frame.High-v.frame.Low)*7 {
			return v.list(s) // they fill the view already and are still too small
		}
		return v.setY(s, b.Bottom-pad, b.Top+pad)
	}
	d, a := s.Device, s.Selected
	if a == timeline.NoAlloc {
		return nil
	}
	axis := s.Window.Axis
	last := timeline.Moment(d.Len() - 1)
	from, to := leaf.Position(d, axis, max(d.Allocs.Start[a], 0)),
		leaf.Position(d, axis, min(d.Allocs.Requested[a], last))
	pad := max((to-from)/8, 4)
	w := timeline.Window{Axis: axis, From: from - pad, To: to + pad}
	return leaf.Send(leaf.WindowMsg{Window: w})
}

// list opens a merged band's blocks in the table of allocations.
func (v *View) list(s *leaf.State) tea.Cmd {
	k, _, _ := v.bands.Value()
	return tea.Sequence(
		leaf.Send(leaf.QueryMsg{Text: fmt.Sprintf("live size<%d sort:-size", k.small)}),
		leaf.Send(leaf.ShowMsg{View: leaf.Allocations}),
	)
}

// focusBytes is what zooming in y keeps in place: the selected band at the cursor, else the middle.
func (v *View) focusBytes(s *leaf.State) int64 {
	for _, b := range v.cursorColumn(s) {
		if b.Alloc == s.Selected && b.Alloc != timeline.NoAlloc {
			return (b.Bottom + b.Top) / 2
		}
	}
	return (v.frame.Low + v.frame.High) / 2
}

func (v *View) zoomY(s *leaf.State, about, num, den int64) tea.Cmd {
	f := &v.frame
	span := f.High - f.Low
	want := max(span/den*num, 1024)
	if want >= v.high {
		v.yLow, v.yHigh = 0, 0
		return v.ask(s)
	}
	low := about - int64(float64(about-f.Low)/float64(max(span, 1))*float64(want))
	return v.setY(s, low, low+want)
}

// setY shows the bytes [low, high), moved to lie within the chart's range.
func (v *View) setY(s *leaf.State, low, high int64) tea.Cmd {
	if low < 0 {
		low, high = 0, high-low
	}
	if high > v.high {
		low, high = max(low-(high-v.high), 0), v.high
	}
	v.yLow, v.yHigh = low, max(high, low+1)
	return v.ask(s)
}

func (v *View) onMouse(s *leaf.State, msg tea.MouseMsg) tea.Cmd {
	if v.frame.Device != s.Device {
		return nil
	}
	area := v.frame.Area
	at := msg.Mouse()
	if wheel, ok := msg.(tea.MouseWheelMsg); ok && area.Contains(at.X, at.Y) && at.Mod.Contains(tea.ModCtrl) {
		about := v.frame.Bytes(at.Y - area.Y)
		if wheel.Button == tea.MouseWheelUp {
			return v.zoomY(s, about, 3, 4)
		}
		return v.zoomY(s, about, 4, 3)
	}
	cmd, _ := v.pointer.Update(s, &v.frame, msg)
	if v.pointer.Clicked() {
		bytes := v.frame.Bytes(at.Y - area.Y)
		for _, b := range v.column(s, at.X-area.X) {
			if bytes >= b.Bottom && bytes < b.Top {
				return tea.Sequence(cmd, v.choose(s, b))
			}
		}
		return tea.Sequence(cmd, leaf.Send(leaf.SelectMsg{Alloc: timeline.NoAlloc}))
	}
	return cmd
}

// Status implements leaf.View.
func (v *View) Status(s *leaf.State) string {
	if v.merged.Count > 0 {
		b := v.merged
		return fmt.Sprintf("%s small blocks, %s together, the largest %s %s: enter zooms "+
			"into them, a lists them",
			leaf.Count(int64(b.Count)), s.Units.Bytes(b.Top-b.Bottom), s.Device.BlockName(b.Alloc),
			s.Units.Bytes(s.Device.Allocs.Rounded[b.Alloc]))
	}
	return leaf.CursorText(s)
}
