package autopsy

import (
	"fmt"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/sites"
	"github.com/gmemtop/gmemtop/timeline/steps"
)

// growth says what grows from step to step in a recording that did not run out of memory, and how far from
// full the device is; "" if nothing grows for certain.
func (w wording) growth() string {
	t, growing := steps.Of(w.Device).Trend, steps.Leaks(w.Device)
	slope, from := t.Slope, ""
	if !t.Leaking {
		switch {
		case len(growing) == 0 && t.Unseen:
			return " This recording cannot show whether memory grows: each step lists only what it used."
		case len(growing) == 0:
			return ""
		}
		slope = growing[0].Slope
	}
	if len(growing) > 0 {
		from = ", most of it at " + named(sites.Name(w.Device, growing[0].Stack))
	}
	s := fmt.Sprintf(" Memory grows by %s an iteration%s", w.units.Bytes(int64(slope)), from)
	// Holes in reserved memory can be filled too, so this is the most that is left.
	if left := w.Info.TotalBytes - w.Totals.PeakAllocated; w.Info.TotalBytes > 0 && left > 0 && slope >= 1 {
		s += ": at this rate it runs out within " + timeline.Counted(int64(float64(left)/slope), "iteration")
	}
	return s + "."
}
