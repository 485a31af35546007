package fit

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/gmemtop/gmemtop/timeline"
)

// Table is what a training takes on each of several cards, or under each of several settings of PyTorch's
// allocator.
type Table struct {
	Rows []Row
}

// Row is one of them.
type Row struct {
	Name   string
	Memory int64   // of the card; 0 in a table of settings
	Report *Report // nil for none
	Why    error   // why there is none
}

// estimate is the row's, nil for none.
func (r *Row) estimate() *Estimate {
	if r.Report == nil {
		return nil
	}
	return r.Report.Estimates[0]
}

// seen reports whether the row has figures of a step that fits.
func (r *Row) seen() bool {
	x := r.estimate()
	return x != nil && x.Fits && !x.unseen()
}

// write writes the row behind its name.
func (r *Row) write(w io.Writer, u timeline.Units) {
	x := r.estimate()
	switch {
	case x == nil:
		fmt.Fprintln(w, r.Why)
	case !x.Fits && x.Process != nil:
		fmt.Fprintf(w, "does not fit: %s\n", fullOf(x.Process, u))
	case !x.Fits:
		fmt.Fprintf(w, "does not fit: %s allocated at the peak\n", u.Bytes(x.Peak))
	case x.unseen():
		fmt.Fprintf(w, "no step was seen: %s reserved so far\n", u.Bytes(x.Reserved))
	default:
		fmt.Fprintf(w, "fits: %s allocated at the peak, %s reserved", u.Bytes(x.Peak), u.Bytes(x.Reserved))
		if x.Process != nil {
			if n := x.Process.Fullest().Retries; n > 0 {
				fmt.Fprintf(w, ", its cache given back %d times", n)
			}
		}
		fmt.Fprintln(w)
	}
}

// WriteCards writes the table of cards, the one with least memory first, and names the smallest that fits.
func (t *Table) WriteCards(w io.Writer, u timeline.Units) error {
	best := slices.IndexFunc(t.Rows, func(r Row) bool { return r.seen() })
	switch {
	case best >= 0:
		return t.write(w, u, "the smallest that fits: "+t.Rows[best].Name)
	case t.Unseen():
		return t.write(w, u, "nothing says whether a step fits one of them")
	}
	return t.write(w, u, "it fits none of them")
}

// WriteSettings writes the table of settings, and names the one under which least is reserved.
func (t *Table) WriteSettings(w io.Writer, u timeline.Units) error {
	var best *Row
	for i := range t.Rows {
		r := &t.Rows[i]
		if r.seen() && (best == nil || r.estimate().Reserved < best.estimate().Reserved) {
			best = r
		}
	}
	switch {
	case best != nil:
		return t.write(w, u, "the least is reserved with: "+best.Name)
	case t.Unseen():
		return t.write(w, u, "nothing says whether a step fits with one of them")
	}
	return t.write(w, u, "it fits with none of them")
}

func (t *Table) write(w io.Writer, u timeline.Units, verdict string) error {
	var b strings.Builder
	var notes []string
	widest := 0
	for i := range t.Rows {
		widest = max(widest, len(t.Rows[i].Name))
	}
	for i := range t.Rows {
		r := &t.Rows[i]
		fmt.Fprintf(&b, "%-*s  ", widest, r.Name)
		if r.Memory > 0 {
			fmt.Fprintf(&b, "%11s  ", u.Bytes(r.Memory))
		}
		r.write(&b, u)
		if r.Report != nil {
			notes = r.Report.notes()
		}
	}
	fmt.Fprintf(&b, "\n%s\n\n", verdict)
	for _, n := range notes {
		fmt.Fprintln(&b, "note: "+n)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// Unseen reports whether the script ended before its first step in some row, and fits in none.
func (t *Table) Unseen() bool {
	return !t.Fits() &&
		slices.ContainsFunc(t.Rows, func(r Row) bool { return r.Report != nil && r.Report.Unseen() })
}

// Fits reports whether the training fits in some row.
func (t *Table) Fits() bool {
	return slices.ContainsFunc(t.Rows, func(r Row) bool { return r.Report != nil && r.Report.Fits() })
}
