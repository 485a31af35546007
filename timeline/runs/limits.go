package runs

import (
	"slices"
	"strings"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/traces"
)

// SitesApart reports whether only one of the recordings names lines of code. Then every call site is in one
// of them only, which says nothing about the training. A recording without blocks is like any other.
func (x *Diff) SitesApart() bool {
	return x.A.Allocs.Len() > 0 && x.B.Allocs.Len() > 0 && namesLines(x.A) != namesLines(x.B)
}

// Limits says what cannot be compared because the recordings are of different kinds, "" for nothing.
func (x *Diff) Limits() string {
	var text []string
	if x.SitesApart() {
		text = append(text, "Only "+x.oneThat(namesLines)+" names lines of code, so call sites cannot be "+
			"compared.")
	}
	timed := slices.ContainsFunc(x.Metrics, func(m Metric) bool { return m.Name == stepMetric })
	if timed && byOps(x.A) != byOps(x.B) {
		text = append(text, "Only "+x.oneThat(byOps)+" was recorded op by op, which slows its steps, so "+
			"step times cannot be compared.")
	}
	return strings.Join(text, " ")
}

// parted marks call sites that only one kind of recording has, so that they are called neither new nor gone.
func parted(rows []DiffRow) []DiffRow {
	for i, r := range rows {
		switch {
		case r.A == 0:
			rows[i].Cause = "only in B"
		case r.B == 0:
			rows[i].Cause = "only in A"
		}
	}
	return rows
}

// oneThat names the side for which is returns true.
func (x *Diff) oneThat(is func(*timeline.Device) bool) string {
	if is(x.A) {
		return "A"
	}
	return "B"
}

// namesLines reports whether any stack has a line of code. One of ops and modules has none.
func namesLines(d *timeline.Device) bool {
	frames := d.Timeline().Places().Frames
	return slices.ContainsFunc(frames, func(f traces.Frame) bool { return f.Line > 0 })
}

// byOps reports whether PyTorch's ops were recorded, which slows the steps.
func byOps(d *timeline.Device) bool {
	t := d.Timeline().Trace
	return t.OfPyTorch() && len(t.Accesses) > 0
}
