package timeline

import (
	"context"
	"math/bits"
	"sort"

	"github.com/gmemtop/gmemtop/traces"
)

// Time returns the time of event m in nanoseconds of the trace's clock; Time(Start) is the first event's, and
// a moment past the last event has the last one's. If the source's clock steps back, the time stays at the
// one before.
func (d *Device) Time(m Moment) int64 {
	if d.n == 0 {
		return 0
	}
	return d.time[min(max(int(m), 0), d.n-1)]
}

// MomentAt returns the last event at or before time t in nanoseconds, Start if there is none.
func (d *Device) MomentAt(t int64) Moment {
	return Moment(sort.Search(d.n, func(i int) bool { return d.time[i] > t }) - 1)
}

// Span returns the first event's time and the last one's plus one nanosecond; 0, 0 if the device has no
// event.
func (d *Device) Span() (from, to int64) {
	if d.n == 0 {
		return 0, 0
	}
	return d.time[0], d.time[d.n-1] + 1
}

// Event returns event m as recorded in the trace. It panics for Start and past the last event.
func (d *Device) Event(m Moment) traces.Event { return d.tl.Trace.Events.At(d.first + int(m)) }

// Full returns the window of the whole recording along an axis.
func (d *Device) Full(a Axis) Window {
	if a == AxisEvents {
		return Window{Axis: a, From: 0, To: int64(d.n)}
	}
	from, to := d.Span()
	return Window{Axis: a, From: from, To: to}
}

// firstAt returns the first event at or after position x of an axis, Len if there is none.
func firstAt(d *Device, a Axis, x int64) Moment {
	if a == AxisEvents {
		return Moment(min(max(x, 0), int64(d.n)))
	}
	return Moment(sort.Search(d.n, func(i int) bool { return d.time[i] >= x }))
}

// Edge returns the left edge of column i of n, the first position for which [Window.Column] returns i: From +
// (To-From)·i/n, rounded up. i is from 0 to n.
func (w Window) Edge(i, n int) int64 {
	hi, lo := bits.Mul64(uint64(max(w.To-w.From, 0)), uint64(i))
	q, rest := bits.Div64(hi, lo, uint64(n))
	if rest > 0 {
		q++
	}
	return w.From + int64(q)
}

// Column returns the column of n that position x lies in: -1 before the window, n after it.
func (w Window) Column(x int64, n int) int {
	switch {
	case x < w.From:
		return -1
	case x >= w.To:
		return n
	}
	hi, lo := bits.Mul64(uint64(x-w.From), uint64(max(n, 0)))
	q, _ := bits.Div64(hi, lo, uint64(w.To-w.From))
	return int(q)
}

// Columns appends the n columns that divide window w evenly to dst and returns it: extremes of s in each,
// exact at every zoom.
func (d *Device) Columns(s *Series, w Window, n int, dst []Column) []Column {
	if n <= 0 {
		return dst
	}
	first := firstAt(d, w.Axis, w.From)
	for i := range n {
		end := max(first, firstAt(d, w.Axis, w.Edge(i+1, n)))
		dst = append(dst, s.Range(first, end))
		first = end
	}
	return dst
}

// categoryEvery is how many events lie between two checkpoints of the bytes by category.
const categoryEvery = 4096

// categoryMarks are the allocated bytes by category before events 0, categoryEvery, 2·categoryEvery...
var categoryMarks = NewMemo(func(d *Device) [][NumCategories]int64 {
	var sum [NumCategories]int64
	a := &d.Allocs
	for _, id := range d.LiveAt(Start, nil) {
		sum[a.Category[id]] += a.Rounded[id]
	}
	sum[Unknown] += d.Totals.Unattributed
	marks := make([][NumCategories]int64, 0, d.n/categoryEvery+1)
	for m := Moment(0); int(m) <= d.n; m += categoryEvery {
		marks = append(marks, sum)
		addCategories(d, &sum, m, min(m+categoryEvery, Moment(d.n)))
	}
	return marks
})

// addCategories adds what events [from, to) change.
func addCategories(d *Device, sum *[NumCategories]int64, from, to Moment) {
	a := &d.Allocs
	for m := from; m < to; m++ {
		id := d.allocOf[m]
		if id == NoAlloc {
			continue
		}
		if a.Start[id] == m {
			sum[a.Category[id]] += a.Rounded[id]
		}
		if a.Requested[id] == m {
			sum[a.Category[id]] -= a.Rounded[id]
		}
	}
	// Some allocations end at another allocation's event.
	i := sort.Search(len(d.closings), func(i int) bool { return d.closings[i].at >= from })
	for ; i < len(d.closings) && d.closings[i].at < to; i++ {
		if id := d.closings[i].id; a.Requested[id] == d.closings[i].at {
			sum[a.Category[id]] -= a.Rounded[id]
		}
	}
}

// CategoryColumns returns allocated bytes by category at each column's MaxAt of Allocated, so that a column's
// sum is its Max. A column costs at most categoryEvery steps.
func CategoryColumns(ctx context.Context, d *Device, w Window, n int) ([][NumCategories]int64, error) {
	out, marks := make([][NumCategories]int64, 0, max(n, 0)), categoryMarks.Of(d)
	for _, c := range d.Columns(d.Allocated, w, n, nil) {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		next := min(max(c.MaxAt+1, 0), Moment(d.n))
		sum := marks[next/categoryEvery]
		addCategories(d, &sum, next/categoryEvery*categoryEvery, next)
		out = append(out, sum)
	}
	return out, nil
}

// HasLifetimes reports whether the device has an event at which allocated bytes change.
func (d *Device) HasLifetimes() bool {
	for i := d.first; i < d.first+d.n; i++ {
		if a := d.tl.Trace.Events.Action[i]; a == traces.Alloc || a.IsFreeRequest() {
			return true
		}
	}
	return false
}
