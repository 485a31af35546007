package overview

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	tea "charm.land/bubbletea/v2"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/tui/canvas"
	"github.com/gmemtop/gmemtop/tui/leaf"
)

// equation is what reserved bytes are the sum of at the cursor: allocated, pending, stranded and cached ones.
type equation struct {
	state leaf.Query[at, *timeline.AllocatorState]
}

// ask asks for the allocator's state.
func (e *equation) ask(k at) tea.Cmd {
	return e.state.Ask(k, func(ctx context.Context) (*timeline.AllocatorState, error) {
		return timeline.StateAt(ctx, k.device, k.moment)
	})
}

// draw draws the equation in row y, and how much of it is rounding.
func (e *equation) draw(s *leaf.State, c *canvas.Canvas, y int) {
	key, st, ok := e.state.Value()
	w := c.Width()
	if !ok || key.device != s.Device {
		return
	}
	th := s.Theme
	if !st.Known {
		switch {
		case s.Device.Info.Kind == traces.DeviceArena: // nothing is reserved there
		case s.Device.Totals.PeakReserved.Or(0) > 0:
			c.TextMax(1, y, w-2, th.Dim, "what else is reserved is unknown: "+st.Reason)
		default:
			c.TextMax(1, y, w-2, th.Dim, "reserved bytes are unknown: "+st.Reason)
		}
		return
	}
	unit, size := s.Units.Column(st.Reserved)
	mark := map[timeline.Exactness]string{timeline.LowerBound: "≥ ", timeline.Inferred: "~ "}[st.Exactness]
	active := st.ActiveRequested + st.Internal
	allocated := min(s.Device.Allocated.At(key.moment), active)
	terms := []term{{"allocated", allocated}, {"pending free", active - allocated},
		{"fragmented", st.Stranded}, {"cached", st.Cached}}
	x := 1
	for i, t := range fitting(terms, w-canvas.Width(" = reserved 0.00 GiB")-2, size) {
		if i > 0 {
			x += c.Text(x, y, th.Dim, " + ")
		}
		x += c.Text(x, y, th.Dim, t.name+" ")
		x += c.Text(x, y, th.Text, size(t.bytes))
	}
	x += c.Text(x, y, th.Dim, " = reserved ")
	x += c.Text(x, y, th.Text, size(st.Reserved))
	x += c.Text(x, y, th.Dim, " "+unit)
	if st.Internal > 0 {
		if text := fmt.Sprintf("; %s is rounding", s.Units.Bytes(st.Internal)); x+canvas.Width(text)+1 <= w {
			x += c.Text(x, y, th.Dim, text)
		}
	}
	if mark == "" || st.Reason == "" {
		return
	}
	for _, why := range []string{st.Reason, "4 shows why"} {
		if x+2+canvas.Width(mark+why)+1 <= w {
			c.Text(x+2, y, th.Dim, mark+why)
			return
		}
	}
}

// term is one part of the equation.
type term struct {
	name  string
	bytes int64
}

// fitting returns the terms that are not zero. If they do not all fit, the smallest become one, so that the
// sum still holds.
func fitting(terms []term, room int, size func(int64) string) []term {
	terms = slices.DeleteFunc(terms, func(t term) bool { return t.bytes <= 0 })
	for {
		need := 0
		for _, t := range terms {
			need += canvas.Width(t.name) + 1 + canvas.Width(size(t.bytes)) + 3
		}
		if need-3 <= room || len(terms) < 2 {
			return terms
		}
		other := term{name: "other"}
		for range 2 {
			least := slices.MinFunc(terms, func(a, b term) int { return cmp.Compare(a.bytes, b.bytes) })
			terms = slices.Delete(terms, slices.Index(terms, least), slices.Index(terms, least)+1)
			other.bytes += least.bytes
		}
		terms = append(terms, other)
	}
}
