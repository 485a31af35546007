package fit

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/gmemtop/gmemtop/capture/pytorch/estimate"
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/report"
)

// Table is what a training takes on each of several cards, or under each of several settings of PyTorch's
// allocator.
type Table struct {
	cards   bool // the rows are cards, not settings
	rows    []row
	outside int64 // of a card's memory, what no tensor accounts for
}

// row is one of them.
type row struct {
	Name       string
	Memory     int64         // of the card; 0 in a table of settings
	Capability [2]int        // the card's compute capability
	Report     *Report       // nil for none
	Why        error         // why there is none; nil if it was not run, or need not be
	Turn       int           // counted from 1, the how many-th run this was; 0 for none
	Took       time.Duration // how long the run took
}

// find runs a training on as few cards as necessary to find the smallest that fits: see [Table.unneeded]. The
// rows name the cards, the one with least memory first; run makes a row's report. The error is run's, but
// *estimate.NoKernels only if all cards give it.
func (t *Table) find(run func(i int) (*Report, error)) error {
	turn := 1
	for i, ok := t.next(); ok; i, ok = t.next() {
		row, began := &t.rows[i], time.Now()
		row.Report, row.Why = run(i)
		row.Turn, row.Took = turn, time.Since(began)
		turn++
		if row.Why != nil && !errors.As(row.Why, new(*estimate.NoKernels)) {
			return row.Why
		}
		t.served(row)
	}
	return t.unanswered()
}

// next returns the card to run next; ok is false once the smallest that fits is known. Whatever the order, a
// card is ruled out only by a run; the order tries to get by with few. It begins with the middle. A run that
// fits shows what the training takes where there is enough: the smallest card that fits probably has at
// least as much memory as was allocated, and no more than was reserved. If a run shows otherwise, as with
// scripts that look at the card's memory, it is the middle again.
func (t *Table) next() (card int, ok bool) {
	open := t.open()
	if len(open) == 0 {
		return 0, false
	}
	var most *Estimate // on the largest card that it fits on
	for i := range t.rows {
		if t.rows[i].seen() {
			most = t.rows[i].estimate()
		}
	}
	if most == nil || slices.ContainsFunc(t.rows, func(r row) bool {
		return r.full() && r.Memory-t.outside >= most.Reserved
	}) {
		return open[len(open)/2], true
	}
	holds := func(bytes int64) int {
		i := slices.IndexFunc(open, func(i int) bool { return t.rows[i].Memory-t.outside >= bytes })
		if i < 0 {
			return len(open) - 1
		}
		return i
	}
	first, last := holds(most.Peak), holds(most.Reserved)
	k := (first + last) / 2
	cramped := func(r *row) bool { return r.Memory-t.outside < most.Reserved }
	if cramped(&t.rows[open[last]]) && !slices.ContainsFunc(t.rows, func(r row) bool {
		return r.seen() && cramped(&r)
	}) {
		k = last // most trainings need what they reserve: if so, this run rules out all the others
	}
	for k < last && t.rows[open[k+1]].Capability[0] > t.rows[open[k]].Capability[0] {
		k++ // on the newer card, a run that does not fit rules out the older one too
	}
	return open[k], true
}

// served notes which cards the torch of a run has no kernels for: they need no run.
func (t *Table) served(r *row) {
	torch, oldest, none := "", [2]int{}, (*estimate.NoKernels)(nil)
	if errors.As(r.Why, &none) {
		torch, oldest = none.Torch, none.Oldest
	} else if p := r.estimate().Process; p != nil {
		torch, oldest = p.Torch, p.Oldest
	}
	for i := range t.rows {
		other := &t.rows[i]
		if other.Turn == 0 && slices.Compare(other.Capability[:], oldest[:]) < 0 {
			other.Why = &estimate.NoKernels{Torch: torch, Capability: other.Capability, Oldest: oldest}
		}
	}
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
		case j > i && !x.Fits && t.rows[i].Capability[0] <= other.Capability[0]:
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

// outcome is what came of a run, in a few words.
func (x *Estimate) outcome() string {
	switch {
	case x.unseen():
		return "no step was seen"
	case x.Fits:
		return "it fits"
	}
	return "it does not fit"
}

// seen reports whether the row has figures of a step that fits.
func (r *row) seen() bool {
	x := r.estimate()
	return x != nil && x.Fits && !x.unseen()
}

// full reports whether the training ran out of memory in the row.
func (r *row) full() bool { return r.Report != nil && !r.estimate().Fits }

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

// WriteText answers what the table was made for and writes its rows.
func (t *Table) WriteText(w io.Writer, l Look) error {
	if t.cards {
		return t.writeCards(w, l)
	}
	return t.writeSettings(w, l)
}

// writeCards names the smallest card that fits, and writes the table of cards, the one with least memory
// first.
func (t *Table) writeCards(w io.Writer, l Look) error {
	best := slices.IndexFunc(t.rows, func(r row) bool { return r.seen() })
	switch {
	case best >= 0:
		return t.write(w, l, "the smallest card that fits: "+t.rows[best].Name)
	case t.Unseen():
		return t.write(w, l, "no step was seen on any card, so there is no telling whether one fits")
	}
	return t.write(w, l, "it fits on none of these cards")
}

// writeSettings names the setting under which least is reserved, and writes the table of settings.
func (t *Table) writeSettings(w io.Writer, l Look) error {
	var best *row
	for i := range t.rows {
		r := &t.rows[i]
		if r.seen() && (best == nil || r.estimate().Reserved < best.estimate().Reserved) {
			best = r
		}
	}
	switch {
	case best != nil:
		return t.write(w, l, best.Name+" reserves least")
	case t.Unseen():
		return t.write(w, l, "no step was seen with any of these settings, so there is no telling whether "+
			"one fits")
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

type tableJSON struct {
	Schema   int        `json:"schema_version"`
	Outside  int64      `json:"outside_bytes"`
	Kind     string     `json:"allocator"`
	Torch    string     `json:"torch"`
	Smallest *string    `json:"smallest"`
	Cards    []cardJSON `json:"cards"`
	Notes    []string   `json:"notes"`
}

type cardJSON struct {
	Name     string `json:"name"`
	Memory   int64  `json:"memory_bytes"`
	Fits     *bool  `json:"fits"`
	Turn     *int   `json:"turn"`
	Took     *int64 `json:"run_time_ns"`
	Peak     *int64 `json:"peak_allocated_bytes"`
	Reserved *int64 `json:"reserved_bytes"`
	Retries  *int64 `json:"retries"`
	Steps    *int   `json:"steps"`
	Why      string `json:"why,omitempty"`
	// OutOfMemory are the requests that failed.
	OutOfMemory []estimate.OutOfMemory `json:"out_of_memory,omitempty"`
	Answers     []estimate.RealAnswer  `json:"answers,omitempty"`
}

// WriteJSON writes a table of cards as JSON, the one with least memory first.
func (t *Table) WriteJSON(w io.Writer, u timeline.Units) error {
	j := tableJSON{Schema: report.SchemaVersion, Outside: t.outside, Kind: "real"}
	for i := range t.rows {
		r := &t.rows[i]
		c := cardJSON{Name: r.Name, Memory: r.Memory}
		if x := r.estimate(); x == nil || x.unseen() || !x.Fits {
			c.Why = t.says(i, u)
		}
		if r.Turn > 0 {
			took := r.Took.Nanoseconds()
			c.Turn, c.Took = &r.Turn, &took
		}
		if x := r.estimate(); x != nil && x.Process != nil {
			j.Torch, j.Notes = x.Result.Torch, r.Report.notes()
			retries := x.Process.Fullest().Retries
			c.Peak, c.Reserved, c.Retries, c.Steps = &x.Peak, &x.Reserved, &retries, &x.Result.Steps
			c.OutOfMemory, c.Answers = x.Process.OutOfMemory, x.Process.Answers
			if !x.unseen() {
				c.Fits = &x.Fits
			}
		}
		if j.Smallest == nil && r.seen() {
			j.Smallest = &r.Name
		}
		j.Cards = append(j.Cards, c)
	}
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(j)
}
