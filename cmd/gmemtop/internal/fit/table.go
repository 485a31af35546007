package fit

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/gmemtop/gmemtop/capture/pytorch/estimate"
	"github.com/gmemtop/gmemtop/timeline"
)

// Table is what a training takes on each of several cards, or under each of several settings of PyTorch's
// allocator.
type Table struct {
	rows []row
}

// row is one of them.
type row struct {
	Name       string
	Memory     int64   // of the card; 0 in a table of settings
	Generation int     // the card's, as the major number of its compute capability
	Report     *Report // nil for none
	Why        error   // why there is none; nil if it was not run
}

// find runs a training on as few cards as necessary to find the smallest that fits: see [Table.unneeded]. The
// rows name the cards, the one with least memory first; run makes a row's report. The error is run's, but
// *estimate.NoKernels only if all cards give it.
func (t *Table) find(run func(i int) (*Report, error)) error {
	for open := t.open(); len(open) > 0; open = t.open() {
		i := open[len(open)/2]
		row := &t.rows[i]
		if row.Report, row.Why = run(i); row.Why != nil && !errors.As(row.Why, new(*estimate.NoKernels)) {
			return row.Why
		}
	}
	return t.unanswered()
}

// each runs a training for every row. The error is run's, but one that wraps estimate.ErrUnsupported only if
// all rows give it.
func (t *Table) each(run func(i int) (*Report, error)) error {
	for i := range t.rows {
		row := &t.rows[i]
		if row.Report, row.Why = run(i); row.Why != nil && !errors.Is(row.Why, estimate.ErrUnsupported) {
			return row.Why
		}
	}
	return t.unanswered()
}

// unanswered is why a row has no report, nil if any has one.
func (t *Table) unanswered() (why error) {
	for i := range t.rows {
		if t.rows[i].Report != nil {
			return nil
		}
		why = cmp.Or(why, t.rows[i].Why)
	}
	return why
}

// open lists the cards that may still turn out to be the smallest that fits, without those that were run.
func (t *Table) open() (rows []int) {
	for i := range t.rows {
		if r := &t.rows[i]; r.Report == nil && r.Why == nil && t.unneeded(i) == "" {
			rows = append(rows, i)
		}
	}
	return rows
}

// unneeded says why a card need not be run, "" as long as no other card tells. If a training fits on one,
// those with more memory need no run. If it does not, neither do those with less memory, unless they are of
// a newer generation, for which PyTorch has kernels that take less, such as flash attention from compute
// capability 8.0 on.
func (t *Table) unneeded(i int) string {
	for j := range t.rows {
		other := &t.rows[j]
		x := other.estimate()
		switch {
		case x == nil:
		case j < i && other.seen():
			return fmt.Sprintf("not run: it fits on the %s, which has less memory", other.Name)
		case j > i && x.unseen():
			return fmt.Sprintf("not run: no step was seen on the %s, which has more memory", other.Name)
		case j > i && !x.Fits && t.rows[i].Generation <= other.Generation:
			return fmt.Sprintf("not run: it does not fit on the %s, which has more memory", other.Name)
		}
	}
	return ""
}

// estimate is the row's, nil for none.
func (r *row) estimate() *Estimate {
	if r.Report == nil {
		return nil
	}
	return r.Report.Estimates[0]
}

// seen reports whether the row has figures of a step that fits.
func (r *row) seen() bool {
	x := r.estimate()
	return x != nil && x.Fits && !x.unseen()
}

// verdict is whether the training fits there, in a word.
func (r *row) verdict() string {
	switch x := r.estimate(); {
	case x == nil && r.Why == nil:
		return "–"
	case x == nil || x.unseen():
		return "?"
	case x.Fits:
		return "yes"
	}
	return "no"
}

// says is what a row says behind its verdict.
func (t *Table) says(i int, u timeline.Units) string {
	r := &t.rows[i]
	x := r.estimate()
	switch {
	case x == nil && r.Why == nil:
		return t.unneeded(i)
	case x == nil:
		return r.Why.Error()
	case !x.Fits && x.Process != nil:
		return fullOf(x.Process, u)
	case x.unseen():
		return "no step was seen; it had reserved " + u.Bytes(x.Reserved)
	}
	s := fmt.Sprintf("%9s  %9s", u.Bytes(x.Peak), u.Bytes(x.Reserved))
	if x.Process != nil && x.Process.Fullest().Retries > 0 {
		s += fmt.Sprintf("  retries: %d", x.Process.Fullest().Retries)
	}
	return s
}

// WriteCards names the smallest card that fits, and writes the table of cards, the one with least memory
// first.
func (t *Table) WriteCards(w io.Writer, l Look) error {
	best := slices.IndexFunc(t.rows, func(r row) bool { return r.seen() })
	switch {
	case best >= 0:
		return t.write(w, l, "the smallest card that fits: "+t.rows[best].Name)
	case t.Unseen():
		return t.write(w, l, "no step was seen on any card, so nothing says whether one fits")
	}
	return t.write(w, l, "it fits on none of these cards")
}

// WriteSettings names the setting under which least is reserved, and writes the table of settings.
func (t *Table) WriteSettings(w io.Writer, l Look) error {
	var best *row
	for i := range t.rows {
		r := &t.rows[i]
		if r.seen() && (best == nil || r.estimate().Reserved < best.estimate().Reserved) {
			best = r
		}
	}
	switch {
	case best != nil:
		return t.write(w, l, "least is reserved with "+best.Name)
	case t.Unseen():
		return t.write(w, l, "no step was seen with any of these settings, so nothing says whether one fits")
	}
	return t.write(w, l, "it fits with none of these settings")
}

// write writes the answer, the rows, and the notes of the last row that ran.
func (t *Table) write(w io.Writer, l Look, answer string) error {
	var b strings.Builder
	var notes []string
	kind, memory := "settings", ""
	if t.rows[0].Memory > 0 {
		kind, memory = "card", fmt.Sprintf("%8s  ", "memory")
	}
	widest := len(kind)
	for i := range t.rows {
		widest = max(widest, len(t.rows[i].Name))
	}
	l.prose(&b, "", answer)
	fmt.Fprintf(&b, "\n%-*s  %sfits  %9s  %9s\n", widest, kind, memory, "allocated", "reserved")
	for i := range t.rows {
		r := &t.rows[i]
		head := fmt.Sprintf("%-*s  ", widest, r.Name)
		if r.Memory > 0 {
			head += fmt.Sprintf("%8s  ", l.Units.Bytes(r.Memory))
		}
		head += fmt.Sprintf("%-4s  ", r.verdict())
		if x := r.estimate(); x == nil || x.unseen() || !x.Fits && x.Process != nil {
			l.prose(&b, head, t.says(i, l.Units))
		} else {
			fmt.Fprintln(&b, head+t.says(i, l.Units))
		}
		if r.Report != nil {
			notes = r.Report.notes()
		}
	}
	fmt.Fprintln(&b)
	if strings.Contains(b.String(), "  retries: ") {
		notes = append([]string{"retries: how often PyTorch gave its cache back to the driver to meet a " +
			"request, which costs time"}, notes...)
	}
	l.notes(&b, notes)
	_, err := io.WriteString(w, b.String())
	return err
}

// Unseen reports whether the script ended before its first step in some row, and fits in none.
func (t *Table) Unseen() bool {
	return !t.Fits() &&
		slices.ContainsFunc(t.rows, func(r row) bool { return r.Report != nil && r.Report.Unseen() })
}

// Fits reports whether the training fits in some row.
func (t *Table) Fits() bool {
	return slices.ContainsFunc(t.rows, func(r row) bool { return r.Report != nil && r.Report.Fits() })
}
