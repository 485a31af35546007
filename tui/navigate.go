package tui

import (
	"fmt"
	"sort"

	tea "charm.land/bubbletea/v2"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/tui/leaf"
)

// walker is the Model as what moves the cursor, the window, the mark and the selection.
type walker struct{ *Model }

// setCursor moves the time cursor, and the window where it would leave it.
func (m walker) setCursor(to timeline.Moment) tea.Cmd {
	s := &m.state
	d := s.Device
	if d == nil {
		return nil
	}
	to = min(max(to, timeline.Start), timeline.Moment(d.Len()-1))
	s.Cursor = to
	var found tea.Cmd
	if s.Query.Live && s.Query.LiveAt != to {
		s.Query.LiveAt = to
		found = m.find()
	}
	s.Window = leaf.Show(s.Window, d.Full(s.Window.Axis), leaf.Position(d, s.Window.Axis, to))
	return tea.Batch(found, m.changed())
}

// columns is how many columns the charts have, near enough: what one press of an arrow moves by.
func (m walker) columns() int64 { return int64(max(m.layout.body.W-12, 20)) }

// move moves the cursor by one column, to that column's maximum, which is what the chart shows there.
func (m walker) move(by int64) tea.Cmd {
	s := &m.state
	d, axis := s.Device, s.Window.Axis
	step := leaf.Span(s.Window) / m.columns()
	pos := leaf.Position(d, axis, s.Cursor)
	from := pos + by*step
	to := leaf.MomentAt(d, axis, from)
	if step > 0 {
		cols := d.Columns(d.Allocated, timeline.Window{Axis: axis, From: from, To: from + step}, 1, nil)
		if len(cols) == 1 && cols[0].End > cols[0].First {
			to = cols[0].MaxAt
		}
	}
	if by > 0 && to <= s.Cursor {
		to = s.Cursor + 1
	}
	if by < 0 && to >= s.Cursor {
		to = s.Cursor - 1
	}
	return m.setCursor(to)
}

// step moves the cursor by events and selects the block that the event allocates or frees.
func (m walker) step(by timeline.Moment) tea.Cmd {
	s := &m.state
	to := min(max(s.Cursor+by, timeline.Start), timeline.Moment(s.Device.Len()-1))
	if to >= 0 {
		s.Selected = s.Device.AllocOf(to)
	}
	return m.setCursor(to)
}

func (m walker) page(by int64) tea.Cmd {
	s := &m.state
	d, axis := s.Device, s.Window.Axis
	by *= leaf.Span(s.Window) / 2
	s.Window = leaf.Pan(s.Window, d.Full(axis), by)
	return m.setCursor(leaf.MomentAt(d, axis, leaf.Position(d, axis, s.Cursor)+by))
}

func (m walker) toPeak() tea.Cmd { return m.setCursor(m.state.Device.Totals.PeakAt) }

func (m walker) toEnd(which int) tea.Cmd {
	if which < 0 {
		return m.setCursor(timeline.Start)
	}
	return m.setCursor(timeline.Moment(m.state.Device.Len() - 1))
}

func (m walker) hasIterations() bool {
	return m.ready() && m.state.Analysed && len(m.state.Device.Iterations().List) > 0
}

// toIteration moves to the start of the iteration before or after the cursor's.
func (m walker) toIteration(by int) tea.Cmd {
	list := m.state.Device.Iterations().List
	c := m.state.Cursor
	if by > 0 {
		i := sort.Search(len(list), func(i int) bool { return list[i].First > c })
		if i == len(list) {
			return leaf.Send(leaf.ToastMsg{Text: "this is the last iteration"})
		}
		return m.setCursor(list[i].First)
	}
	i := sort.Search(len(list), func(i int) bool { return list[i].First >= c }) - 1
	if i < 0 {
		return leaf.Send(leaf.ToastMsg{Text: "this is the first iteration"})
	}
	return m.setCursor(list[i].First)
}

// toLocalPeak moves to the next iteration's peak, or, where there are no iterations, to the next hill of the curve.
func (m walker) toLocalPeak(by int) tea.Cmd {
	peaks := m.localPeaks()
	c := m.state.Cursor
	if by > 0 {
		if i := sort.Search(len(peaks), func(i int) bool { return peaks[i] > c }); i < len(peaks) {
			return m.setCursor(peaks[i])
		}
		return leaf.Send(leaf.ToastMsg{Text: "there is no peak after this one"})
	}
	if i := sort.Search(len(peaks), func(i int) bool { return peaks[i] >= c }) - 1; i >= 0 {
		return m.setCursor(peaks[i])
	}
	return leaf.Send(leaf.ToastMsg{Text: "there is no peak before this one"})
}

// localPeaks returns moments in order: peaks of iterations, else the tops of hills that stand out by a twentieth of the peak,
// looked for at the resolution of 512 columns over the whole recording.
func (m walker) localPeaks() []timeline.Moment {
	d := m.state.Device
	var peaks []timeline.Moment
	if m.hasIterations() {
		for _, it := range d.Iterations().List {
			peaks = append(peaks, it.PeakAt)
		}
		return peaks
	}
	cols := d.Columns(d.Allocated, d.Full(m.state.Window.Axis), 512, nil)
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
func (m walker) zoom(num, den int64) tea.Cmd {
	s := &m.state
	d, axis := s.Device, s.Window.Axis
	s.Window = leaf.Zoom(s.Window, d.Full(axis), leaf.Position(d, axis, s.Cursor), num, den)
	return m.changed()
}

func (m walker) wholeWindow() tea.Cmd {
	m.state.Window = m.state.Device.Full(m.state.Window.Axis)
	return m.changed()
}

// windowIteration shows the iteration that the cursor is in, or the one before it.
func (m walker) windowIteration() tea.Cmd {
	s := &m.state
	list := s.Device.Iterations().List
	i := max(sort.Search(len(list), func(i int) bool { return list[i].First > s.Cursor })-1, 0)
	it, axis := list[i], s.Window.Axis
	from := leaf.Position(s.Device, axis, it.First)
	to := leaf.Position(s.Device, axis, min(it.End, timeline.Moment(s.Device.Len()-1)))
	pad := (to - from) / 20
	s.Window = leaf.Zoom(timeline.Window{Axis: axis, From: from - pad, To: to + pad + 1}, s.Device.Full(axis), from, 1, 1)
	return m.setCursor(min(max(s.Cursor, it.First), it.End-1))
}

// openStretch shows the events [first, end) with the cursor at their maximum.
func (m walker) openStretch(first, end timeline.Moment) tea.Cmd {
	s := &m.state
	d := s.Device
	if d == nil || end <= first {
		return nil
	}
	axis := s.Window.Axis
	w := timeline.Window{Axis: axis, From: leaf.Position(d, axis, first), To: leaf.Position(d, axis, end-1) + 1}
	s.Window = leaf.Zoom(w, d.Full(axis), w.From, 1, 1)
	return m.setCursor(max(d.Allocated.Range(first, end).MaxAt, first))
}

// toggleAxis changes what x counts and keeps the stretch that is shown.
func (m walker) toggleAxis() tea.Cmd {
	s := &m.state
	d, old := s.Device, s.Window
	if old.Axis == timeline.AxisTime {
		from, to := int64(max(d.MomentAt(old.From), 0)), int64(d.MomentAt(old.To))+1
		s.Window = timeline.Window{Axis: timeline.AxisEvents, From: from, To: to}
	} else {
		if !s.Timeline.Trace.Clock.HasTime {
			return leaf.Send(leaf.ToastMsg{Text: "this recording has no clock: x counts events"})
		}
		last := timeline.Moment(min(max(old.To, 1), int64(d.Len())) - 1)
		s.Window = timeline.Window{Axis: timeline.AxisTime, From: d.Time(timeline.Moment(max(old.From, 0))), To: d.Time(last) + 1}
	}
	if s.Window.To <= s.Window.From {
		s.Window = d.Full(s.Window.Axis)
	}
	if old == d.Full(old.Axis) {
		s.Window = d.Full(s.Window.Axis)
	}
	return m.changed()
}

func (m walker) hasMark() bool { return m.ready() && m.state.HasMark }

func (m walker) mark() tea.Cmd {
	s := &m.state
	s.Mark, s.HasMark = s.Cursor, true
	m.lastMark = s.Cursor
	text := "marked " + m.momentText(s.Mark) + "; move on and press d to compare, ' to come back"
	return tea.Batch(m.changed(), leaf.Send(leaf.ToastMsg{Text: text}))
}

// toMark jumps to the mark, and from the mark to where the last jump came from.
func (m walker) toMark() tea.Cmd {
	s := &m.state
	if s.Cursor == s.Mark {
		return m.setCursor(m.lastMark)
	}
	m.lastMark = s.Cursor
	return m.setCursor(s.Mark)
}

// compare shows what changed between the mark and the cursor.
func (m walker) compare() tea.Cmd { return m.show(leaf.Peak) }

// momentText says a moment as a person would: its time, or its index where there is no clock.
func (m walker) momentText(at timeline.Moment) string {
	s := &m.state
	if at == timeline.Start {
		return "the start"
	}
	if s.Window.Axis == timeline.AxisEvents || !s.Timeline.Trace.Clock.HasTime {
		return fmt.Sprintf("event %s", leaf.Count(int64(at)))
	}
	from, _ := s.Device.Span()
	return timeline.Duration(s.Device.Time(at) - from)
}

func (m walker) hasFilter() bool { return m.ready() && m.state.QueryText != "" }

// toMatch selects the next block of the filter after the cursor, or before it, and moves there.
func (m walker) toMatch(by int) tea.Cmd {
	s := &m.state
	if m.found.text != s.QueryText || m.found.device != s.Device {
		return leaf.Send(leaf.ToastMsg{Text: "still searching"})
	}
	list := m.found.blocks
	if len(list) == 0 {
		return leaf.Send(leaf.ToastMsg{Text: "no block matches " + s.QueryText, Error: true})
	}
	i := sort.Search(len(list), func(i int) bool { return list[i] >= s.Selected })
	switch {
	case s.Selected == timeline.NoAlloc:
		i = 0
	case by > 0 && i < len(list) && list[i] == s.Selected:
		i++
	case by < 0:
		i--
	}
	i = (i + len(list)) % len(list)
	s.Selected = list[i]
	cmd := m.setCursor(s.Device.Allocs.Start[s.Selected])
	text := fmt.Sprintf("match %s of %s", leaf.Count(int64(i+1)), leaf.Count(int64(len(list))))
	return tea.Batch(cmd, leaf.Send(leaf.ToastMsg{Text: text}))
}

// canBack reports whether esc has something to take back.
func (m walker) canBack() bool {
	s := &m.state
	return m.ready() && (s.Selected != timeline.NoAlloc || s.QueryText != "" || s.HasMark || s.Window != s.Device.Full(s.Window.Axis))
}

// back takes back the latest of what narrows the view: the selection, the filter, the mark, the zoom.
func (m walker) back() tea.Cmd {
	s := &m.state
	switch {
	case s.Selected != timeline.NoAlloc:
		s.Selected = timeline.NoAlloc
	case s.QueryText != "":
		s.QueryText, s.Query = "", timeline.Query{}
	case s.HasMark:
		s.HasMark = false
	default:
		return m.wholeWindow()
	}
	return m.changed()
}
