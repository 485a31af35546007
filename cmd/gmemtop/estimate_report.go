package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/report"
	"github.com/gmemtop/gmemtop/timeline/sites"
)

// label says at which size.
func (x *estimated) label() string {
	var words []string
	if x.batch > 0 {
		words = append(words, "batch "+strconv.Itoa(x.batch))
	}
	if x.sequence > 0 {
		words = append(words, "sequence "+strconv.Itoa(x.sequence))
	}
	return strings.Join(words, ", ")
}

func (e *estimateCommand) writeText(w io.Writer, all []*estimated, largest *largestFit) {
	u := e.flags.report.Units
	for i, x := range all {
		if i > 0 {
			fmt.Fprintln(w)
		}
		verdict := "fits"
		if !x.fits {
			verdict = "does not fit"
		}
		head := "~ " + verdict + ": " + u.Bytes(x.reserved+e.outside) + " of " + u.Bytes(e.budget) + ", " + e.hardware.Name
		if l := x.label(); l != "" {
			head += ", " + l
		}
		fmt.Fprintln(w, head)
		if x.fits && x.reserved+e.outside > e.budget {
			fmt.Fprintln(w, "  only by giving cached memory back to the driver within steps, which costs time")
		}
		when := "before the first step"
		if x.step > 0 {
			when = "in step " + strconv.Itoa(x.step)
		}
		fmt.Fprintf(w, "  %-28s %12s  %s\n", "peak allocated", u.Bytes(x.peak), when)
		for _, g := range sites.Breakdown(x.device, x.device.Totals.PeakAt, sites.ByCategory) {
			fmt.Fprintf(w, "    %-26s %12s\n", g.Name, u.Bytes(g.Bytes))
		}
		fmt.Fprintf(w, "  %-28s %12s  PyTorch's caching allocator, emulated\n", "reserved", u.Bytes(x.reserved))
		fmt.Fprintf(w, "  %-28s %12s  CUDA context and libraries, assumed: --outside\n", "outside of tensors", u.Bytes(e.outside))
		if n := len(x.result.Trace.Marks); n > 0 {
			fmt.Fprintf(w, "  %-28s %12s  from %s's figures\n", "step "+strconv.Itoa(n), "~"+timeline.Duration(x.stepTime), e.hardware.Name)
		}
	}
	if largest != nil {
		how := "run at that size"
		if largest.inferred {
			how = "inferred from one batch: parameters, gradients and optimizer state stay, the rest grows with it"
		}
		if largest.batch == 0 {
			fmt.Fprintf(w, "\n~ no batch fits\n")
		} else {
			fmt.Fprintf(w, "\n~ largest batch that fits: %d (%s)\n", largest.batch, how)
		}
	}
	fmt.Fprintln(w)
	for _, n := range e.notes(all) {
		fmt.Fprintln(w, "note: "+n)
	}
}

// notes are what the figures leave out, each once.
func (e *estimateCommand) notes(all []*estimated) []string {
	var notes []string
	add := func(n string) {
		if !slices.Contains(notes, n) {
			notes = append(notes, n)
		}
	}
	for _, x := range all {
		if n := x.result.Asked(); n > 0 {
			var of []string
			for _, m := range x.result.MadeUp {
				of = append(of, fmt.Sprintf("%s %d", m.Op, m.Count))
			}
			add(fmt.Sprintf("values made up: %d (%s)", n, strings.Join(of, ", ")))
		}
		if x.result.Steps == 0 {
			add("no optimizer of torch stepped: the peak is that of all the script did")
		} else if x.result.Steps < 2 {
			add("one step alone was seen: later ones hold the optimizer's state from their beginning")
		}
		for _, n := range x.result.Notes {
			add(n)
		}
	}
	add("memory that kernels take inside of an op (workspaces of cuBLAS and cuDNN) is not in it")
	return notes
}

type estimateJSON struct {
	Schema   int                `json:"schema_version"`
	Budget   int64              `json:"budget_bytes"`
	Outside  int64              `json:"outside_bytes"`
	Hardware string             `json:"hardware"`
	Torch    string             `json:"torch"`
	Results  []estimateSizeJSON `json:"results"`
	MaxBatch *int               `json:"max_batch"`
	Inferred bool               `json:"max_batch_inferred"`
	Notes    []string           `json:"notes"`
}

type estimateSizeJSON struct {
	Batch      int                    `json:"batch"`
	Sequence   int                    `json:"sequence"`
	Fits       bool                   `json:"fits"`
	Peak       int64                  `json:"peak_allocated_bytes"`
	Requested  int64                  `json:"peak_allocated_requested_bytes"`
	PeakStep   int                    `json:"peak_step"`
	Reserved   int64                  `json:"reserved_bytes"`
	StepTime   int64                  `json:"step_time_ns"`
	Steps      int                    `json:"steps"`
	MadeUp     int64                  `json:"values_made_up"`
	ByCategory []estimateCategoryJSON `json:"by_category"`
}

type estimateCategoryJSON struct {
	Name      string `json:"name"`
	Bytes     int64  `json:"bytes"`
	Requested int64  `json:"requested_bytes"`
}

func (e *estimateCommand) writeJSON(w io.Writer, all []*estimated, largest *largestFit) error {
	j := estimateJSON{Schema: report.SchemaVersion, Budget: e.budget, Outside: e.outside, Hardware: e.hardware.Name, Torch: all[0].result.Torch, Notes: e.notes(all)}
	for _, x := range all {
		s := estimateSizeJSON{Batch: x.batch, Sequence: x.sequence, Fits: x.fits, Peak: x.peak, Requested: x.device.Totals.PeakAllocatedRequested, PeakStep: x.step, Reserved: x.reserved,
			StepTime: x.stepTime, Steps: x.result.Steps, MadeUp: x.result.Asked(), ByCategory: []estimateCategoryJSON{}}
		for _, g := range sites.Breakdown(x.device, x.device.Totals.PeakAt, sites.ByCategory) {
			s.ByCategory = append(s.ByCategory, estimateCategoryJSON{g.Name, g.Bytes, g.Requested})
		}
		j.Results = append(j.Results, s)
	}
	if largest != nil {
		j.MaxBatch, j.Inferred = &largest.batch, largest.inferred
	}
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(j)
}
