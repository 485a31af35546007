package timeline

import (
	"fmt"
	"strings"

	"github.com/gmemtop/gmemtop/traces"
)

// When says in words when a moment is: in which iteration and phase, and how long after the beginning.
func (d *Device) When(m Moment) string {
	if m == Start {
		return "at the start of the recording, before its first event"
	}
	timed := d.Timeline().Trace.Clock.HasTime
	from, _ := d.Span()
	since, origin := d.Time(m)-from, "into the recording"
	var parts []string
	for _, x := range d.Iterations().List {
		if x.First <= m && m < x.End {
			parts = append(parts, "in "+x.Name)
			since, origin = d.Time(m)-x.Start, "after its start"
		}
	}
	if p, _ := d.PhaseAt(m); p != traces.PhaseUnknown {
		if len(parts) == 0 {
			parts = append(parts, "in "+p.String())
		} else {
			parts = append(parts, p.String())
		}
	}
	if timed {
		parts = append(parts, Duration(since)+" "+origin)
	} else {
		parts = append(parts, fmt.Sprintf("at event %d of %d", m+1, d.Len()))
	}
	return strings.Join(parts, ", ")
}
