package leaf

import "github.com/gmemtop/gmemtop/timeline"

// Position returns where a moment lies on an axis: its time in nanoseconds, or its index.
func Position(d *timeline.Device, a timeline.Axis, m timeline.Moment) int64 {
	if a == timeline.AxisEvents {
		return int64(max(m, 0))
	}
	if m == timeline.Never {
		_, to := d.Span()
		return to
	}
	return d.Time(m)
}

// MomentAt returns the last moment at or before a position of an axis.
func MomentAt(d *timeline.Device, a timeline.Axis, pos int64) timeline.Moment {
	if a == timeline.AxisEvents {
		return timeline.Moment(min(max(pos, -1), int64(d.Len()-1)))
	}
	return d.MomentAt(pos)
}

// Span returns the length of a window, at least 1.
func Span(w timeline.Window) int64 { return max(w.To-w.From, 1) }

// smallestSpan is how far one can zoom in: a few events, or a few dozen nanoseconds.
func smallestSpan(a timeline.Axis) int64 {
	if a == timeline.AxisEvents {
		return 8
	}
	return 64
}

// Zoom returns the window scaled by num/den about a position that keeps its place on screen; it stays within
// full.
func Zoom(w, full timeline.Window, about, num, den int64) timeline.Window {
	span := Span(w)
	want := min(max(int64(float64(span)*float64(num)/float64(den)), min(smallestSpan(w.Axis), Span(full))),
		Span(full))
	about = min(max(about, w.From), w.To)
	from := about - int64(float64(about-w.From)/float64(span)*float64(want))
	return within(timeline.Window{Axis: w.Axis, From: from, To: from + want}, full)
}

// Pan returns the window moved by a distance; it stays within full.
func Pan(w, full timeline.Window, by int64) timeline.Window {
	return within(timeline.Window{Axis: w.Axis, From: w.From + by, To: w.To + by}, full)
}

// Show returns the window moved as little as possible to show a position with some room on either side.
func Show(w, full timeline.Window, pos int64) timeline.Window {
	margin := Span(w) / 10
	switch {
	case pos < w.From:
		return Pan(w, full, pos-margin-w.From)
	case pos >= w.To:
		return Pan(w, full, pos+margin-w.To+1)
	}
	return w
}

func within(w, full timeline.Window) timeline.Window {
	span := w.To - w.From
	if span >= full.To-full.From {
		return full
	}
	if w.From < full.From {
		w.From = full.From
	}
	if w.From+span > full.To {
		w.From = full.To - span
	}
	w.To = w.From + span
	return w
}
