package figure

import (
	"context"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/report"
	"github.com/gmemtop/gmemtop/timeline/steps"
)

// Options says what to draw and how.
type Options struct {
	report.Options
	// Title is the figure's heading, "" for the file's name.
	Title string
	// Width and Height are the figure's size in CSS pixels; 0 means 1200 and 640.
	Width, Height int
	// Dark draws light on dark; HTML follows the reader's own setting.
	Dark bool
}

func (o Options) size() (w, h int) {
	w, h = o.Width, o.Height
	if w <= 0 {
		w = 1200
	}
	if h <= 0 {
		h = 640
	}
	return w, h
}

// chart holds the content of one device's figure, before layout.
type chart struct {
	Title, Headline string
	Stats           *report.Stats // of this device alone
	Device          *report.DeviceStats

	// Columns are the chart's columns from left to right.
	Columns []column
	// Order is the categories that appear, bottom of the stack first.
	Order []timeline.Category
	// Top is the largest value of any column.
	Top int64
	// Peak is the column that holds the high-water mark, -1 for none.
	Peak int
	// Marks are the beginnings of iterations, as fractions of the width.
	Marks []mark
	// From and To are the bounds of the x axis, in nanoseconds since the first event, or in events if the
	// trace has no clock.
	From, To int64
	HasTime  bool
	HasCache bool // the reserved series is meaningful
	units    timeline.Units
}

// column is one column of the chart: allocated bytes by category at the moment within it when they are
// largest.
type column struct {
	By        [timeline.NumCategories]int64 `json:"by"`
	Allocated int64                         `json:"allocated"`
	Reserved  int64                         `json:"reserved"`
	At        int64                         `json:"at"` // of the left edge, in units of From and To
}

// mark is a labelled place on the x axis.
type mark struct {
	X     float64 `json:"x"`
	Label string  `json:"label"`
}

// stackOrder is the categories from the bottom of the stack up: the longest-lived lie lowest, so that the
// shape of a step rests on a level floor. Blocks from before the recording are unknown and lie at the very
// bottom.
var stackOrder = []timeline.Category{
	timeline.Unknown,
	timeline.Parameter,
	timeline.OptimizerState,
	timeline.Cache,
	timeline.Gradient,
	timeline.Input,
	timeline.Activation,
	timeline.AutogradDetail,
	timeline.Temporary,
}

// newChart computes the chart of a device in n columns.
func newChart(ctx context.Context, d *timeline.Device, n int, o Options) (*chart, error) {
	t := d.Timeline()
	so := o.Options
	so.Devices = report.OnlyDevice(d.Info)
	stats, err := report.NewStats(ctx, t, so)
	if err != nil {
		return nil, err
	}
	c := &chart{
		Title: o.Title, Headline: stats.Headline, Stats: stats, Device: &stats.Devices[0], Peak: -1,
		HasTime: t.Trace.Clock.HasTime, units: o.Units,
	}
	c.Headline = c.Device.Headline
	if c.Title == "" {
		c.Title = baseName(t.Trace.Source.Path)
	}
	if len(t.Devices) > 1 {
		c.Title += " · " + report.DeviceName(d.Info)
	}
	span, err := report.Resolve(d, o.From, o.To)
	if err != nil {
		return nil, err
	}
	if d.Len() > 0 {
		if err := c.fill(ctx, d, span, n); err != nil {
			return nil, err
		}
	}
	c.order()
	return c, nil
}

// window returns the stretch of the axis that the span covers, and the axis' zero.
func window(d *timeline.Device, s report.Span) (w timeline.Window, origin int64) {
	if !d.Timeline().Trace.Clock.HasTime {
		return timeline.Window{Axis: timeline.AxisEvents, From: int64(s.First), To: int64(s.End)}, 0
	}
	if s.Whole {
		return d.Full(timeline.AxisTime), d.Timeline().Zero()
	}
	return timeline.Window{Axis: timeline.AxisTime, From: d.Time(s.First), To: d.Time(s.End-1) + 1},
		d.Timeline().Zero()
}

func (c *chart) fill(ctx context.Context, d *timeline.Device, s report.Span, n int) error {
	w, origin := window(d, s)
	if w.To <= w.From {
		return nil
	}
	by, err := timeline.CategoryColumns(ctx, d, w, n)
	if err != nil {
		return err
	}
	allocated := d.Columns(d.Allocated, w, n, nil)
	c.HasCache = d.Totals.PeakReserved.Or(0) > 0
	var reserved []timeline.Column
	if c.HasCache {
		reserved = d.Columns(d.Reserved, w, n, nil)
	}
	c.From, c.To = w.From-origin, w.To-origin
	c.Columns = make([]column, n)
	peakAt := timeline.Moment(-1)
	if c.Device.PeakEvent != nil {
		peakAt = timeline.Moment(*c.Device.PeakEvent)
	}
	for i := range c.Columns {
		col := &c.Columns[i]
		col.By, col.Allocated = by[i], allocated[i].Max
		col.At = c.From + int64(float64(c.To-c.From)*float64(i)/float64(n))
		if c.HasCache {
			col.Reserved = reserved[i].Max
		}
		c.Top = max(c.Top, col.Allocated, col.Reserved)
		if allocated[i].First <= peakAt && peakAt < allocated[i].End {
			c.Peak = i
		}
	}
	for _, it := range c.Device.Iterations {
		at := it.FirstEvent
		if c.HasTime {
			at = *it.Start
		}
		if x := float64(at-c.From) / float64(c.To-c.From); x >= 0 && x < 1 {
			c.Marks = append(c.Marks, mark{X: x, Label: "it " + steps.IterationNumber(it.Name)})
		}
	}
	return nil
}

// order finds the categories that appear at all.
func (c *chart) order() {
	for _, cat := range stackOrder {
		seen := false
		for i := range c.Columns {
			seen = seen || c.Columns[i].By[cat] > 0
		}
		for _, row := range c.Device.Peak.ByCategory {
			seen = seen || categoryOf(row.Name) == cat && row.Bytes > 0
		}
		if seen {
			c.Order = append(c.Order, cat)
		}
	}
}

// at returns a value of the time axis as text.
func (c *chart) at(v int64) string {
	if c.HasTime {
		return timeline.Duration(v)
	}
	return report.Grouped(v)
}
