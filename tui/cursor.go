package tui

import (
	"fmt"
	"sort"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/steps"
	"github.com/gmemtop/gmemtop/tui/leaf"
)

// cursor moves through a device's recording: the moment, the window, the mark and the selection. Methods
// return a message about the move, "" for none.
type cursor struct {
	*leaf.Place
	device   *timeline.Device
	analysed bool            // the device's iterations are known
	last     timeline.Moment // where ' came from
}

// open goes to a device's peak and shows its whole recording; nil is no device.
func (c *cursor) open(d *timeline.Device) {
	c.device, c.analysed = d, false
	c.Cursor, c.Selected, c.HasMark = timeline.Start, timeline.NoAlloc, false
	if d == nil {
		return
	}
	c.Cursor = d.Totals.PeakAt
	axis := timeline.AxisTime
	if !hasTime(d) {
		axis = timeline.AxisEvents
	}
	c.Window = d.Full(axis)
}

// hasTime reports whether a device's recording has a clock.
func hasTime(d *timeline.Device) bool { return d.Timeline().Trace.Clock.HasTime }

// hasEvents reports whether there is anything to move through: a recording of one moment has nothing.
func (c *cursor) hasEvents() bool { return c.device != nil && c.device.Len() > 1 }

// atOneMoment reports whether the recording shows nothing but one moment.
func (c *cursor) atOneMoment() bool { return c.device != nil && c.device.Len() <= 1 }

// choose selects a block. Blocks that are not the device's, such as one of a previous device, select nothing.
func (c *cursor) choose(a timeline.AllocID) {
	if c.device == nil || a < 0 || int(a) >= c.device.Allocs.Len() {
		a = timeline.NoAlloc
	}
	c.Selected = a
}

// show shows a window, clipped to the recording.
func (c *cursor) show(w timeline.Window) {
	if c.device != nil {
		c.Window = leaf.Pan(w, c.device.Full(w.Axis), 0)
	}
}

// moveTo moves the cursor, and the window with it if the cursor would leave it.
func (c *cursor) moveTo(to timeline.Moment) string {
	d := c.device
	if d == nil {
		return ""
	}
	c.Cursor = min(max(to, timeline.Start), timeline.Moment(d.Len()-1))
	c.Window = leaf.Show(c.Window, d.Full(c.Window.Axis), leaf.Position(d, c.Window.Axis, c.Cursor))
	return ""
}

// move moves the cursor by one of that many columns, to the column's maximum, which the chart shows there.
func (c *cursor) move(by, columns int64) string {
	d, axis := c.device, c.Window.Axis
	step := leaf.Span(c.Window) / columns
	pos := leaf.Position(d, axis, c.Cursor)
	from := pos + by*step
	to := leaf.MomentAt(d, axis, from)
	if step > 0 {
		cols := d.Columns(d.Allocated, timeline.Window{Axis: axis, From: from, To: from + step}, 1, nil)
		if len(cols) == 1 && cols[0].End > cols[0].First {
			to = cols[0].MaxAt
		}
	}
	if by > 0 && to <= c.Cursor {
		to = c.Cursor + 1
	}
	if by < 0 && to >= c.Cursor {
		to = c.Cursor - 1
	}
	return c.moveTo(to)
}

// step moves the cursor by events and selects the block that the event allocates or frees.
func (c *cursor) step(by timeline.Moment) string {
	to := min(max(c.Cursor+by, timeline.Start), timeline.Moment(c.device.Len()-1))
	if to >= 0 {
		c.Selected = c.device.AllocOf(to)
	}
	return c.moveTo(to)
}

func (c *cursor) page(by int64) string {
	d, axis := c.device, c.Window.Axis
	by *= leaf.Span(c.Window) / 2
	c.Window = leaf.Pan(c.Window, d.Full(axis), by)
	return c.moveTo(leaf.MomentAt(d, axis, leaf.Position(d, axis, c.Cursor)+by))
}

func (c *cursor) toPeak() string { return c.moveTo(c.device.Totals.PeakAt) }

func (c *cursor) toEnd(which int) string {
	if which < 0 {
		return c.moveTo(timeline.Start)
	}
	return c.moveTo(timeline.Moment(c.device.Len() - 1))
}

func (c *cursor) hasIterations() bool {
	return c.device != nil && c.analysed && len(steps.Of(c.device).List) > 0
}

// toIteration moves to the start of the previous or next iteration.
func (c *cursor) toIteration(by int) string {
	list := steps.Of(c.device).List
	at := c.Cursor
	if by > 0 {
		i := sort.Search(len(list), func(i int) bool { return list[i].First > at })
		if i == len(list) {
			return "this is the last iteration"
		}
		return c.moveTo(list[i].First)
	}
	i := sort.Search(len(list), func(i int) bool { return list[i].First >= at }) - 1
	if i < 0 {
		return "this is the first iteration"
	}
	return c.moveTo(list[i].First)
}

// toLocalPeak moves to the next iteration's peak or, without iterations, to the curve's next local maximum.
func (c *cursor) toLocalPeak(by int) string {
	peaks := c.localPeaks()
	at := c.Cursor
	if by > 0 {
		if i := sort.Search(len(peaks), func(i int) bool { return peaks[i] > at }); i < len(peaks) {
			return c.moveTo(peaks[i])
		}
		return "there is no peak after this one"
	}
	if i := sort.Search(len(peaks), func(i int) bool { return peaks[i] >= at }) - 1; i >= 0 {
		return c.moveTo(peaks[i])
	}
	return "there is no peak before this one"
}

// localPeaks returns moments in order: the peaks of iterations, or else the local maxima of the curve.
func (c *cursor) localPeaks() []timeline.Moment {
	if !c.hasIterations() {
		return localMaxima(c.device, c.Window.Axis)
	}
	var peaks []timeline.Moment
	for _, it := range steps.Of(c.device).List {
		peaks = append(peaks, it.PeakAt)
	}
	return peaks
}

// localMaxima returns, in order, local maxima that stand out by a twentieth of the peak, found at a
// resolution of 512 columns over the whole recording.
func localMaxima(d *timeline.Device, axis timeline.Axis) (peaks []timeline.Moment) {
	cols := d.Columns(d.Allocated, d.Full(axis), 512, nil)
	rise := max(d.Totals.PeakAllocated/20, 1)
	low, top := int64(0), -1
	if len(cols) > 0 {
		low = cols[0].Min
	}
	for i, c := range cols {
		switch {
		case top < 0 && c.Max >= low+rise, top >= 0 && c.Max > cols[top].Max:
			top = i
		case top >= 0 && c.Min <= cols[top].Max-rise:
			peaks = append(peaks, cols[top].MaxAt)
			low, top = c.Min, -1
		case top < 0:
			low = min(low, c.Min)
		}
	}
	if top >= 0 {
		peaks = append(peaks, cols[top].MaxAt)
	}
	return peaks
}

// zoom scales the window about the cursor.
func (c *cursor) zoom(num, den int64) string {
	d, axis := c.device, c.Window.Axis
	c.Window = leaf.Zoom(c.Window, d.Full(axis), leaf.Position(d, axis, c.Cursor), num, den)
	return ""
}

func (c *cursor) wholeWindow() string {
	c.Window = c.device.Full(c.Window.Axis)
	return ""
}

// windowIteration shows the iteration that the cursor is in, or the one before it.
func (c *cursor) windowIteration() string {
	list := steps.Of(c.device).List
	i := max(sort.Search(len(list), func(i int) bool { return list[i].First > c.Cursor })-1, 0)
	it, axis := list[i], c.Window.Axis
	from := leaf.Position(c.device, axis, it.First)
	to := leaf.Position(c.device, axis, min(it.End, timeline.Moment(c.device.Len()-1)))
	pad := (to - from) / 20
	w := timeline.Window{Axis: axis, From: from - pad, To: to + pad + 1}
	c.Window = leaf.Zoom(w, c.device.Full(axis), from, 1, 1)
	return c.moveTo(min(max(c.Cursor, it.First), it.End-1))
}

// openStretch shows the events [first, end) with the cursor at their maximum.
func (c *cursor) openStretch(first, end timeline.Moment) string {
	d := c.device
	if d == nil || end <= first {
		return ""
	}
	axis := c.Window.Axis
	from, last := leaf.Position(d, axis, first), leaf.Position(d, axis, end-1)
	w := timeline.Window{Axis: axis, From: from, To: last + 1}
	c.Window = leaf.Zoom(w, d.Full(axis), w.From, 1, 1)
	return c.moveTo(max(d.Allocated.Range(first, end).MaxAt, first))
}

// toggleAxis switches x between time and events, and keeps the stretch that is shown.
func (c *cursor) toggleAxis() string {
	d, old := c.device, c.Window
	if old.Axis == timeline.AxisTime {
		from, to := int64(max(d.MomentAt(old.From), 0)), int64(d.MomentAt(old.To))+1
		c.Window = timeline.Window{Axis: timeline.AxisEvents, From: from, To: to}
	} else {
		if !hasTime(d) {
			return "this recording has no clock: x counts events"
		}
		last := timeline.Moment(min(max(old.To, 1), int64(d.Len())) - 1)
		from := d.Time(timeline.Moment(max(old.From, 0)))
		c.Window = timeline.Window{Axis: timeline.AxisTime, From: from, To: d.Time(last) + 1}
	}
	if c.Window.To <= c.Window.From {
		c.Window = d.Full(c.Window.Axis)
	}
	if old == d.Full(old.Axis) {
		c.Window = d.Full(c.Window.Axis)
	}
	return ""
}

func (c *cursor) mark() string {
	c.setMark(c.Cursor)
	return "marked " + momentText(c.device, c.Window.Axis, c.Mark) +
		": go to another moment; d compares, ' comes back"
}

// toMark jumps to the mark, and from the mark back to where the last jump started.
func (c *cursor) toMark() string {
	if c.Cursor == c.Mark {
		return c.moveTo(c.last)
	}
	c.last = c.Cursor
	return c.moveTo(c.Mark)
}

// momentText names a moment for people: its time, or its index without a clock.
func momentText(d *timeline.Device, axis timeline.Axis, at timeline.Moment) string {
	if at == timeline.Start {
		return "the start"
	}
	if axis == timeline.AxisEvents || !hasTime(d) {
		return fmt.Sprintf("event %s", leaf.Count(int64(at)))
	}
	return timeline.Duration(d.Time(at) - d.Timeline().Zero())
}

// setMark marks a moment.
func (c *cursor) setMark(at timeline.Moment) { c.Mark, c.HasMark, c.last = at, true, at }

// toBlock selects a block and moves to where it is allocated.
func (c *cursor) toBlock(a timeline.AllocID) string {
	c.choose(a)
	return c.moveTo(c.device.Allocs.Start[a])
}

// zoomed reports whether less than the whole recording is shown.
func (c *cursor) zoomed() bool { return c.device != nil && c.Window != c.device.Full(c.Window.Axis) }
