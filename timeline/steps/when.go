package steps

import (
	"fmt"
	"strings"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/traces"
)

// When describes a moment in words: its iteration and phase, and how long after the beginning it is. That is
// the iteration's, unless the iteration begins before the recording's first event: charts begin there.
func When(d *timeline.Device, m timeline.Moment) string {
	if m == timeline.Start {
		return "at the start of the recording, before its first event"
	}
	timed := d.Timeline().Trace.Clock.HasTime
	since, origin := d.Time(m)-d.Timeline().Zero(), "into the recording"
	var parts []string
	for _, x := range Of(d).List {
		if x.First <= m && m < x.End {
			parts = append(parts, "in "+x.Name)
			if x.Start >= d.Timeline().Zero() {
				since, origin = d.Time(m)-x.Start, "after its start"
			}
		}
	}
	if p, _ := PhaseAt(d, m); p != traces.PhaseUnknown {
		if len(parts) == 0 {
			parts = append(parts, "in "+p.String())
		} else {
			parts = append(parts, p.String())
		}
	}
	if timed {
		parts = append(parts, timeline.Duration(since)+" "+origin)
	} else {
		parts = append(parts, fmt.Sprintf("at event %d of %d", m+1, d.Len()))
	}
	return strings.Join(parts, ", ")
}
