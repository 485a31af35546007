package machine

import (
	"fmt"
	"strings"

	"github.com/gmemtop/gmemtop/traces/maybe"
	"github.com/gmemtop/gmemtop/tui/canvas"
	"github.com/gmemtop/gmemtop/tui/leaf"
)

// drawDevice draws one GPU: a line of figures, and below it its usage over time, if there is room.
func (v *View) drawDevice(s *leaf.State, c *canvas.Canvas, d *Device) {
	th, w := s.Theme, c.Width()
	x := c.Text(0, 0, th.Accent.Strong(), fmt.Sprintf("%2d", d.Index)) + 1
	x += c.TextMax(x, 0, min(26, w/4), th.Text, d.Name) + 1
	total, used := d.Total.Or(0), "unknown"
	if n, ok := d.Used.Value(); ok {
		_, text := s.Units.Column(max(total, n))
		used = strings.TrimSpace(text(n))
	}
	used = of(used, s, d.Total)
	style := th.Text
	if n, ok := d.Used.Value(); ok && total > 0 && n > total-total/20 {
		style = th.Bad
	}
	figures := v.figures(s, d)
	bar := w - x - canvas.Width(used) - 2
	fit := len(figures)
	right := strings.Join(figures, "  ")
	for bar-canvas.Width(right)-2 < 14 && fit > 0 {
		fit--
		right = strings.Join(figures[:fit], "  ")
	}
	bar = max(min(bar-canvas.Width(right)-2, 40), 4)
	c.Bar(x, 0, bar, d.Used.Or(0), max(total, 1), th.Plain())
	x += bar + 1
	c.Text(x, 0, style, used)
	c.TextRight(w, 0, th.Dim, right)
	if c.Height() < 2 || w < 8 {
		return
	}
	h := c.Height() - 1
	if h > 1 {
		h--
		x := 3
		if d.Alarm != "" {
			x += c.TextMax(x, c.Height()-1, w-x, th.Bad, d.Alarm) + 2
		}
		for _, f := range figures[fit:] { // figures that did not fit above, as far as they fit here
			if x+canvas.Width(f) > w {
				break
			}
			x += c.Text(x, c.Height()-1, th.Dim, f) + 2
		}
	}
	drawHistory(c.Sub(canvas.Rect{X: 3, Y: 1, W: w - 3, H: h}), d.History, max(total, 1), th.Plain())
}

// drawHistory draws the newest values as columns, as many as fit; unknown ones are gaps.
func drawHistory(c *canvas.Canvas, history []maybe.Int, whole int64, fill canvas.Fill) {
	w, h := c.Size()
	for i, x := range history[max(len(history)-w, 0):] {
		if n := x.Or(0); n > 0 {
			top := int(float64(n) / float64(whole) * float64(8*h))
			c.Column(i, 0, h, []canvas.Slab{{Top: max(top, 1), Fill: fill}}, nil)
		}
	}
}

// figures lists what is known of a GPU besides its memory, most useful first.
func (v *View) figures(s *leaf.State, d *Device) []string {
	var list []string
	add := func(format string, figures ...maybe.Int) { // only if all are known
		var known []any
		for _, f := range figures {
			n, ok := f.Value()
			if !ok {
				return
			}
			known = append(known, n)
		}
		list = append(list, fmt.Sprintf(format, known...))
	}
	rates := func(link string, in, out maybe.Int) {
		if i, ok := in.Value(); ok {
			if o, ok := out.Value(); ok {
				list = append(list, link+" in "+s.Units.Bytes(i)+"/s out "+s.Units.Bytes(o)+"/s")
			}
		}
	}
	add("%3d %% busy", d.Busy)
	if d.Limit.IsKnown() {
		add("%d/%d W", d.Watts, d.Limit)
	} else {
		add("%d W", d.Watts)
	}
	add("%d °C", d.Celsius)
	rates("PCIe", d.Received, d.Sent)
	if d.Slowed != "" {
		list = append(list, "slowed by "+d.Slowed)
	}
	rates("NVLink", d.LinkReceived, d.LinkSent)
	if d.MIG {
		list = append(list, instances(s, d.Instances))
	}
	if d.MemoryClock.IsKnown() {
		add("%d MHz, memory %d MHz", d.Clock, d.MemoryClock)
	} else {
		add("%d MHz", d.Clock)
	}
	switch ecc, known := d.ECC.Value(); {
	case d.Corrected.Or(0) > 0:
		list = append(list, fmt.Sprintf("ECC repaired %s", leaf.Count(d.Corrected.Or(0))))
	case known && ecc == 0:
		list = append(list, "ECC off")
	case known:
		list = append(list, "ECC on")
	}
	if n := d.Reserved.Or(0); n > 0 {
		list = append(list, "driver keeps "+s.Units.Bytes(n))
	}
	return list
}

// instances names the parts of a divided device and how full each is.
func instances(s *leaf.State, list []Instance) string {
	if len(list) == 0 {
		return "MIG without instances"
	}
	var parts []string
	for _, x := range list {
		part := x.Name
		if used, ok := x.Used.Value(); ok && x.Total.IsKnown() {
			part += " " + of(s.Units.Bytes(used), s, x.Total)
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, ", ")
}

// of returns "used of total", or only used if the total is unknown.
func of(used string, s *leaf.State, total maybe.Int) string {
	if n, ok := total.Value(); ok {
		used += " of " + s.Units.Bytes(n)
	}
	return used
}
