package report

import (
	"io"
	"path/filepath"

	"github.com/gmemtop/gmemtop/timeline/runs"
)

// WriteRun prints a run of many ranks: the answer in one sentence, then a table with the outliers first.
func WriteRun(w io.Writer, r *runs.Run, o Options) error {
	p := newPrinter(o)
	p.line("%s", r.Sentence(o.Units))
	p.line("")
	largest := int64(0)
	for i := range r.Ranks {
		largest = max(largest, r.Ranks[i].Totals.PeakReservedOrAllocated())
	}
	unit, format := o.Units.Column(largest)
	rows := []row{{right("rank"), right("peak " + unit), right("reserved " + unit), right("of median"),
		"largest holder at the peak", "file", ""}}
	for i := range r.Ranks {
		rank := &r.Ranks[i]
		number, note, reserved := rank.Rank.String(), "", "–"
		if !rank.Rank.IsKnown() {
			number = "–"
		}
		if i < r.Outliers {
			note = "outlier"
		}
		if rank.Err != nil {
			note = "damaged: only the intact part is shown"
		}
		if held, ok := rank.Totals.PeakReserved.Value(); ok {
			reserved = format(held)
		}
		rows = append(rows, row{right(number), right(format(rank.Totals.PeakAllocated)), right(reserved),
			right(Percent(rank.Totals.PeakAllocated, r.Median)), shorten(rank.Top.Name, 48),
			filepath.Base(rank.Path), note})
	}
	p.table("  ", rows)
	return p.flush(w)
}
