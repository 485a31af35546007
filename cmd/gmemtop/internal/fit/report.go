package fit

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/gmemtop/gmemtop/capture/pytorch/estimate"
	"github.com/gmemtop/gmemtop/timeline"
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

// WriteText writes the report as text.
func (r *Report) WriteText(w io.Writer, u timeline.Units) error {
	var b strings.Builder
	r.text(&b, u)
	_, err := io.WriteString(w, b.String())
	return err
}

func (r *Report) text(w *strings.Builder, u timeline.Units) {
	e, largest := r.Training, r.Largest
	for i, x := range r.Estimates {
		if i > 0 {
			fmt.Fprintln(w)
		}
		verdict := "fits"
		if !x.Fits {
			verdict = "does not fit"
		} else if x.unseen() {
			verdict = "no step was seen"
		}
		head := "~ " + verdict + ": " + u.Bytes(x.Reserved+e.Outside) + " of " + u.Bytes(e.Budget) + ", " +
			e.Hardware.Name
		allocator := "PyTorch's caching allocator, emulated"
		if x.Process != nil {
			head = verdict + ": " + u.Bytes(x.Reserved+e.Outside) + " of " + u.Bytes(e.Budget) + ", " +
				e.Real.Card.Name
			if !x.Fits {
				head = verdict + ": " + fullOf(x.Process, u) + ", " + e.Real.Card.Name
			}
			allocator = "PyTorch's own caching allocator, torch " + x.Result.Torch
		}
		if l := x.Size.String(); l != "" {
			head += ", " + l
		}
		fmt.Fprintln(w, head)
		retried := x.Process != nil && x.Process.Fullest().Retries > 0
		if x.Fits && (x.Reserved+e.Outside > e.Budget || retried) {
			fmt.Fprintln(w, "  only by giving cached memory back to the driver within steps, "+
				"which costs time")
		}
		when := "before the first step"
		if x.PeakStep > 0 {
			when = "in step " + strconv.Itoa(x.PeakStep)
		}
		fmt.Fprintf(w, "  %-28s %12s  %s\n", "peak allocated", u.Bytes(x.Peak), when)
		rest := x.Peak
		for _, g := range sites.Breakdown(x.Device, x.PeakAt, sites.ByCategory) {
			fmt.Fprintf(w, "    %-26s %12s\n", g.Name, u.Bytes(g.Bytes))
			rest -= g.Bytes
		}
		if rest > 0 {
			fmt.Fprintf(w, "    %-26s %12s  blocks that are larger than asked for\n", "rounding",
				u.Bytes(rest))
		}
		fmt.Fprintf(w, "  %-28s %12s  %s\n", "reserved", u.Bytes(x.Reserved), allocator)
		fmt.Fprintf(w, "  %-28s %12s  CUDA context and libraries, assumed: --outside\n", "outside of tensors",
			u.Bytes(e.Outside))
		if n := len(x.Result.Trace.Marks); n > 0 && x.Process == nil {
			fmt.Fprintf(w, "  %-28s %12s  from %s's figures\n", "step "+strconv.Itoa(n),
				"~"+timeline.Duration(x.StepTime), e.Hardware.Name)
		}
	}
	if largest != nil {
		how, sign := "run at that size", "~ "
		if e.Real != nil {
			sign = ""
		}
		if largest.Over > 0 {
			how += fmt.Sprintf("; %d does not fit", largest.Over)
			if largest.Over > largest.Batch+1 {
				how += ", those between were not run"
			}
		}
		if largest.Inferred {
			how = "inferred from one batch: parameters, gradients and optimizer state stay, the rest grows " +
				"with it"
		}
		if largest.Batch == 0 {
			fmt.Fprintf(w, "\n%sno batch fits\n", sign)
		} else {
			fmt.Fprintf(w, "\n%slargest batch that fits: %d (%s)\n", sign, largest.Batch, how)
		}
	}
	fmt.Fprintln(w)
	for _, n := range r.notes() {
		fmt.Fprintln(w, "note: "+n)
	}
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
		if n := x.Result.Asked(); n > 0 && x.Process == nil {
			var of []string
			for _, m := range x.Result.MadeUp {
				of = append(of, fmt.Sprintf("%s %d", m.Op, m.Count))
			}
			add(fmt.Sprintf("values made up: %d (%s)", n, strings.Join(of, ", ")))
		}
		if x.Process != nil && x.Process.Died {
			// What the script did before its first step says little about what a step takes.
		} else if x.Result.Steps == 0 {
			add("the script ended before its first step: the peak covers everything it did, and says " +
				"nothing of a step")
		} else if x.Result.Steps < 2 {
			add("only one step was seen: later ones start with the optimizer's state")
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
	add("memory that kernels take inside of an op, such as workspaces of cuDNN, is only partly in it")
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
			s.OutOfMemory, s.Answers = x.Process.OutOfMemory, x.Process.Answers
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
