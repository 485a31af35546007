package fit

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/gmemtop/gmemtop/capture/pytorch/estimate"
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/autopsy"
	"github.com/gmemtop/gmemtop/timeline/report"
	"github.com/gmemtop/gmemtop/timeline/sites"
)

// Report is what a training takes at each size.
type Report struct {
	Training *Training
	// Estimates holds at least one.
	Estimates []*Estimate
	// Largest is nil if it was not asked for.
	Largest *LargestBatch
}

// Fits reports whether the training fits at all sizes.
func (r *Report) Fits() bool {
	return !slices.ContainsFunc(r.Estimates, func(x *Estimate) bool { return !x.Fits || x.unseen() })
}

// Unseen reports whether the script ended before its first step at some size.
func (r *Report) Unseen() bool { return slices.ContainsFunc(r.Estimates, (*Estimate).unseen) }

// Explain finds out why memory ran out in PyTorch's own allocator, unless l says not to. It says nothing if
// the cause is outside PyTorch: on a stand-in, that is only what --budget left out. It fails only if ctx is
// cancelled.
func (r *Report) Explain(ctx context.Context, l Look) error {
	for _, x := range r.Estimates {
		if l.Brief || x.Process == nil || !x.Process.Died {
			continue
		}
		found, err := autopsy.Of(ctx, x.Device, l.Units)
		if err != nil {
			return fmt.Errorf("looking into why memory ran out: %w", err)
		}
		if !slices.ContainsFunc(found.Causes, isOutside) {
			x.Why = strings.TrimPrefix(found.Sentence, "OOM: ")
		}
	}
	return nil
}

func isOutside(c autopsy.Cause) bool {
	return c.Main && (c.Kind == "outside_pytorch" || c.Kind == "other_process")
}

// Look says how a report is written as text.
type Look struct {
	Units timeline.Units
	Width int // of the terminal, in cells; 0 if unknown
	// Brief leaves all out but whether each size fits.
	Brief bool
}

// usualWidth is a report's width on a wider terminal, or without a terminal: longer lines of prose are hard
// to read.
const usualWidth = 80

// width is how many cells a line of prose may take.
func (l Look) width() int {
	if l.Width > 0 {
		return min(l.Width, usualWidth)
	}
	return usualWidth
}

// prose writes a sentence behind a head, wrapped; further lines align with its first word.
func (l Look) prose(w io.Writer, head, sentence string) {
	at := utf8.RuneCountInString(head)
	indent := "\n" + strings.Repeat(" ", at)
	fmt.Fprintln(w, head+strings.ReplaceAll(report.Wrap(sentence, l.width()-at), "\n", indent))
}

// notes writes each note.
func (l Look) notes(w io.Writer, notes []string) {
	for _, n := range notes {
		l.prose(w, "note: ", n)
	}
}

// WriteText writes the report as text.
func (r *Report) WriteText(w io.Writer, l Look) error {
	var b strings.Builder
	r.text(&b, l)
	_, err := io.WriteString(w, b.String())
	return err
}

func (r *Report) text(w *strings.Builder, l Look) {
	for i, x := range r.Estimates {
		if l.Brief {
			r.answer(w, x, l)
			continue
		}
		if i > 0 {
			fmt.Fprintln(w)
		}
		r.answer(w, x, l)
		r.figures(w, x, l.Units)
	}
	if l.Brief {
		if r.Largest != nil {
			r.largest(w, l)
		}
		return
	}
	if r.Largest != nil {
		fmt.Fprintln(w)
		r.largest(w, l)
	}
	fmt.Fprintln(w)
	l.notes(w, r.notes())
}

// answer says whether a size fits and, if not, why.
func (r *Report) answer(w io.Writer, x *Estimate, l Look) {
	t, u := r.Training, l.Units
	sign, size := "~ ", ""
	if x.Process != nil {
		sign = ""
	}
	if s := x.Size.String(); s != "" {
		size = " with " + s
	}
	at := t.room(u) + size
	needs, has := u.Bytes(x.Reserved+t.Outside), u.Bytes(t.Budget)
	retried := x.Process != nil && x.Process.Fullest().Retries > 0
	switch {
	case !x.Fits && x.Process != nil:
		l.prose(w, "", "does not fit "+at)
		l.prose(w, "  ", "because it runs "+fullOf(x.Process, u))
		if x.Why != "" && !l.Brief {
			l.prose(w, "  ", x.Why)
		}
	case !x.Fits:
		l.prose(w, "", sign+"does not fit "+at)
		l.prose(w, "  ", fmt.Sprintf("because it needs %s of %s", needs, has))
	case x.unseen():
		fmt.Fprintf(w, "%sno step was seen%s: it took %s of %s\n", sign, size, needs, has)
	default:
		l.prose(w, "", fmt.Sprintf("%sfits %s: it needs %s of %s", sign, at, needs, has))
		if x.Reserved+t.Outside > t.Budget || retried {
			l.prose(w, "  ", "but only because PyTorch gives cached memory back to the driver within steps, "+
				"which costs time")
		}
	}
}

// room names what the training must fit in: the card, or the budget if that is not the card's memory.
func (t *Training) room(u timeline.Units) string {
	card, memory := t.Hardware.Name, memory(&t.Hardware)
	if t.Real != nil {
		card, memory = t.Real.Card.Name, t.Real.Card.Memory
	}
	if t.Budget != memory {
		return "in " + u.Bytes(t.Budget)
	}
	return "on " + card
}

// figures writes what a size takes, line by line.
func (r *Report) figures(w io.Writer, x *Estimate, u timeline.Units) {
	t := r.Training
	when := "before the first step"
	switch {
	case x.Result.Whole:
		when = "in all that the script does"
	case x.PeakStep > 0:
		when = "in step " + strconv.Itoa(x.PeakStep)
	}
	line := func(name, size, what string) {
		fmt.Fprintln(w, strings.TrimRight(fmt.Sprintf("  %-26s %10s  %s", name, size, what), " "))
	}
	line("peak allocated", u.Bytes(x.Peak), when)
	rest := x.Peak
	for _, g := range sites.Breakdown(x.Device, x.PeakAt, sites.ByCategory) {
		line("  "+g.Name, u.Bytes(g.Bytes), "")
		rest -= g.Bytes
	}
	if rest > 0 {
		line("  rounding", u.Bytes(rest), "blocks that are larger than asked for")
	}
	allocator := "by PyTorch's allocator, emulated"
	if x.Process != nil {
		allocator = "by PyTorch " + x.Result.Torch + " itself"
	}
	line("reserved", u.Bytes(x.Reserved), allocator)
	if beyond := x.Reserved - x.Peak; beyond > 0 {
		line("  above the peak", u.Bytes(beyond), "cached or fragmented")
	}
	line("outside of tensors", u.Bytes(t.Outside), "assumed: CUDA, libraries (--outside)")
	if n := len(x.Result.Trace.Marks); n > 0 && x.Process == nil && t.Hardware.BytesPerSecond > 0 {
		line("step "+strconv.Itoa(n), "~"+timeline.Duration(x.StepTime), "from "+t.Hardware.Name+"'s figures")
	}
}

// largest writes the largest batch that fits, and how we know.
func (r *Report) largest(w io.Writer, l Look) {
	found, sign, how := r.Largest, "~ ", "run at that size"
	if r.Training.Real != nil {
		sign = ""
	}
	if found.Over > 0 {
		how += fmt.Sprintf("; %d does not fit", found.Over)
		if found.Over > found.Batch+1 {
			how += ", those between were not run"
		}
	}
	if found.Inferred {
		how = "inferred from one batch: parameters, gradients and optimizer state stay, the rest grows " +
			"with it"
	}
	if found.Batch == 0 {
		fmt.Fprintln(w, sign+"no batch fits")
		return
	}
	l.prose(w, sign, fmt.Sprintf("largest batch that fits: %d (%s)", found.Batch, how))
}

// notes returns what the figures leave out, each note once.
func (r *Report) notes() []string {
	var notes []string
	add := func(n string) {
		if !slices.Contains(notes, n) {
			notes = append(notes, n)
		}
	}
	for _, n := range r.Training.Notes {
		add(n)
	}
	for _, x := range r.Estimates {
		if x.Result.Asked() > 0 && x.Process == nil {
			var of []string
			for _, m := range x.Result.MadeUp {
				of = append(of, fmt.Sprintf("%d for %s", m.Count, m.Op))
			}
			add("values that gmemtop made up for the script: " + strings.Join(of, ", "))
		}
		if x.Process != nil && x.Process.Died {
			// What the script did before its first step says little about what a step takes.
		} else if x.Result.Whole {
			add("the script trains nothing: it was run to its end")
		} else if x.Result.Steps == 0 {
			add("the script ended before its first step: the peak covers everything it did, and says " +
				"nothing of a step")
		} else if x.Result.Steps < 2 {
			add("only one step was seen: later ones start with the optimizer's state")
		}
		if n := x.Result.Steps; n > 0 && !x.Result.Whole && (x.Process == nil || !x.Process.Died) {
			add(fmt.Sprintf("step %d was the last: what comes later, such as an evaluation, is not in it", n))
		}
		for _, n := range x.Result.Notes {
			add(n)
		}
		if x.Process != nil {
			realNotes(x, add)
		}
	}
	if r.Training.Real != nil {
		return notes
	}
	add("memory that kernels take inside an op, such as workspaces of cuDNN, is only partly in it")
	return notes
}

type reportJSON struct {
	Schema   int        `json:"schema_version"`
	Budget   int64      `json:"budget_bytes"`
	Outside  int64      `json:"outside_bytes"`
	Hardware string     `json:"hardware"`
	Kind     string     `json:"allocator"`
	Torch    string     `json:"torch"`
	Results  []sizeJSON `json:"results"`
	MaxBatch *int       `json:"max_batch"`
	Inferred bool       `json:"max_batch_inferred"`
	Notes    []string   `json:"notes"`
}

type sizeJSON struct {
	Batch      int            `json:"batch"`
	Sequence   int            `json:"sequence"`
	Fits       bool           `json:"fits"`
	Peak       int64          `json:"peak_allocated_bytes"`
	Requested  int64          `json:"peak_allocated_requested_bytes"`
	PeakStep   int            `json:"peak_step"`
	Reserved   int64          `json:"reserved_bytes"`
	StepTime   int64          `json:"step_time_ns"`
	Steps      int            `json:"steps"`
	MadeUp     int64          `json:"values_made_up"`
	ByCategory []categoryJSON `json:"by_category"`
	// Of PyTorch's own allocator alone.
	OutOfMemory []estimate.OutOfMemory `json:"out_of_memory,omitempty"`
	Why         string                 `json:"why,omitempty"`
	Answers     []estimate.RealAnswer  `json:"answers,omitempty"`
}

type categoryJSON struct {
	Name      string `json:"name"`
	Bytes     int64  `json:"bytes"`
	Requested int64  `json:"requested_bytes"`
}

// WriteJSON writes the report as JSON.
func (r *Report) WriteJSON(w io.Writer) error {
	e, largest := r.Training, r.Largest
	j := reportJSON{Schema: report.SchemaVersion, Budget: e.Budget, Outside: e.Outside,
		Hardware: e.Hardware.Name, Kind: "model", Torch: r.Estimates[0].Result.Torch, Notes: r.notes()}
	if e.Real != nil {
		j.Hardware, j.Kind = e.Real.Card.Name, "real"
	}
	for _, x := range r.Estimates {
		s := sizeJSON{Batch: x.Batch, Sequence: x.Sequence, Fits: x.Fits && !x.unseen(), Peak: x.Peak,
			Requested: x.Device.Totals.PeakAllocatedRequested.Or(-1),
			PeakStep:  x.PeakStep, Reserved: x.Reserved,
			StepTime: x.StepTime, Steps: x.Result.Steps, MadeUp: x.Result.Asked(),
			ByCategory: []categoryJSON{}}
		if x.Process != nil {
			s.OutOfMemory, s.Why, s.Answers = x.Process.OutOfMemory, x.Why, x.Process.Answers
		}
		for _, g := range sites.Breakdown(x.Device, x.PeakAt, sites.ByCategory) {
			s.ByCategory = append(s.ByCategory, categoryJSON{g.Name, g.Bytes, g.Requested})
		}
		j.Results = append(j.Results, s)
	}
	if largest != nil {
		j.MaxBatch, j.Inferred = &largest.Batch, largest.Inferred
	}
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(j)
}
