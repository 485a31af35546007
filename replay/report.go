package replay

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/timeline"
)

// SchemaVersion is the version of the comparison's JSON.
const SchemaVersion = 1

// comparisonJSON is what compare --json prints; docs/json.md describes it.
type comparisonJSON struct {
	SchemaVersion int          `json:"schema_version"`
	Problem       problemJSON  `json:"problem"`
	BudgetBytes   int64        `json:"budget_bytes"`
	NetBytes      int64        `json:"net_budget_bytes"`
	Hardware      hardwareJSON `json:"hardware"`
	StepTime      int64        `json:"keep_all_step_time_ns"`
	Sentence      string       `json:"sentence"`
	// Fidelity is null for a problem that is of no recording.
	Fidelity *fidelityJSON `json:"fidelity"`
	Results  []resultJSON  `json:"results"`
}

type problemJSON struct {
	Name       string   `json:"name"`
	Buffers    int      `json:"buffers"`
	Ops        int      `json:"ops"`
	Iterations int      `json:"iterations"`
	PeakLive   int64    `json:"peak_live_bytes"`
	MustReside int64    `json:"must_reside_bytes"`
	Outside    int64    `json:"outside_bytes"`
	StepTime   int64    `json:"step_time_ns"`
	Kind       string   `json:"kind"`
	Notes      []string `json:"notes"`
}

type hardwareJSON struct {
	Name   string  `json:"name"`
	Origin string  `json:"origin"`
	D2H    float64 `json:"d2h_bytes_per_s"`
	H2D    float64 `json:"h2d_bytes_per_s"`
}

type resultJSON struct {
	Manager     string   `json:"manager"`
	After       string   `json:"after"`
	Family      string   `json:"family"`
	Executor    string   `json:"executor"`
	Target      string   `json:"target"`
	Available   bool     `json:"available"`
	Reason      string   `json:"reason"`
	Fits        bool     `json:"fits"`
	Valid       bool     `json:"valid"`
	Footprint   int64    `json:"footprint_bytes"`
	Reserved    int64    `json:"reserved_bytes"`
	LowerBound  int64    `json:"lower_bound_bytes"`
	StepTime    int64    `json:"step_time_ns"`
	StepP95     int64    `json:"step_time_p95_ns"`
	StepBound   int64    `json:"step_time_bound_ns"`
	Overhead    float64  `json:"overhead"`
	Stall       int64    `json:"stall_ns"`
	Out         int64    `json:"swapped_out_bytes"`
	In          int64    `json:"swapped_in_bytes"`
	Recompute   int64    `json:"recompute_ns"`
	Pinned      int64    `json:"pinned_peak_bytes"`
	MaxBatch    int      `json:"max_batch,omitempty"`
	BatchGuess  bool     `json:"max_batch_inferred,omitempty"`
	DriverCalls int64    `json:"driver_calls"`
	Retries     int64    `json:"retries"`
	Planning    int64    `json:"planning_ns"`
	Notes       []string `json:"notes"`
}

// WriteJSON writes the comparison as docs/json.md describes it.
func (c *Comparison) WriteJSON(w io.Writer, u timeline.Units) error {
	p := c.Problem
	live, _ := p.PeakLive()
	out := comparisonJSON{SchemaVersion: SchemaVersion, BudgetBytes: c.Budget, NetBytes: c.Net, StepTime: c.Baseline, Sentence: c.Sentence(u),
		Fidelity: c.Fidelity.json(),
		Problem: problemJSON{Name: p.Name, Buffers: len(p.Buffers), Ops: len(p.Ops), Iterations: p.Iterations, PeakLive: live, MustReside: p.MustReside().Total(),
			Outside: p.Outside, StepTime: c.Baseline, Kind: p.Kind.String(), Notes: append([]string{}, p.Notes...)},
		Hardware: hardwareJSON{p.Hardware.Name, p.Hardware.Origin, p.Hardware.D2H.BytesPerSecond, p.Hardware.H2D.BytesPerSecond},
		Results:  []resultJSON{}}
	for i := range c.Results {
		r := &c.Results[i]
		m := &r.Measurement
		j := resultJSON{Manager: r.Info.Name, After: r.Info.After, Family: r.Info.Family.String(), Executor: r.Executor.String(), Target: r.Target,
			Available: r.Available, Reason: r.Reason, Fits: r.Fits, Valid: r.Valid, Footprint: m.Footprint, Reserved: m.Reserved, StepTime: m.StepTime, StepP95: m.StepP95,
			Overhead: r.Overhead, Stall: m.Stall, Out: m.SwappedOut, In: m.SwappedIn, Recompute: m.RecomputeTime, Pinned: m.PinnedPeak,
			MaxBatch: r.MaxBatch, BatchGuess: r.MaxBatchInferred, DriverCalls: m.DriverCalls, Retries: m.Retries, Notes: r.notes()}
		if r.Plan != nil {
			j.LowerBound, j.StepBound, j.Planning = r.Plan.LowerBound, r.Plan.StepBound, r.Plan.Planning.Nanoseconds()
		}
		out.Results = append(out.Results, j)
	}
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(out)
}

// notes gathers what should be known about a result.
func (r *Result) notes() []string {
	notes := []string{}
	if r.Info.Reading != "" {
		notes = append(notes, "our reading: "+r.Info.Reading)
	}
	if r.Plan != nil {
		notes = append(notes, r.Plan.Notes...)
	}
	return append(notes, r.Measurement.Notes...)
}

// TextOptions say how a comparison is printed.
type TextOptions struct {
	Units timeline.Units
	// ASCII keeps the text free of other characters; Notes prints what should be known about each result.
	ASCII, Notes bool
}

// WriteText writes the comparison as a person reads it: the answer, the problem, the table, what is not available and why.
func (c *Comparison) WriteText(w io.Writer, o TextOptions) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n\n", c.Sentence(o.Units))
	c.writeProblem(&b, o)
	c.writeTable(&b, o)
	c.writeReasons(&b)
	if o.Notes {
		if h := c.Problem.Hardware; h.Origin != "" {
			fmt.Fprintf(&b, "%s: %s\n", h.Name, h.Origin)
		}
		for i := range c.Results {
			r := &c.Results[i]
			for _, n := range r.notes() {
				fmt.Fprintf(&b, "%s (%s): %s\n", r.Info.Name, r.Executor, n)
			}
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (c *Comparison) writeProblem(b *strings.Builder, o TextOptions) {
	p := c.Problem
	live, _ := p.PeakLive()
	fmt.Fprintf(b, "problem   %s%s, %d ops, %d buffers, %s\n", name(p), map[bool]string{true: " (two iterations as one)"}[p.Iterations > 1], len(p.Ops), len(p.Buffers), p.Kind)
	fmt.Fprintf(b, "memory    %s alive at the peak, %s of it whatever a manager does\n", o.Units.Bytes(live), o.Units.Bytes(p.MustReside().Total()))
	switch {
	case !p.HasTimes:
		b.WriteString("time      the recording has no clock: step times mean nothing and are left out\n")
	case p.TimesInferred:
		fmt.Fprintf(b, "time      ~%s an iteration with everything kept, by the host's clock\n", timeline.Duration(c.Baseline))
	default:
		fmt.Fprintf(b, "time      %s an iteration with everything kept\n", timeline.Duration(c.Baseline))
	}
	if h := p.Hardware; h.Name != "" {
		fmt.Fprintf(b, "hardware  %s: %s to the host, %s from it, by data sheets and assumptions that --notes lists\n", h.Name, rate(h.D2H), rate(h.H2D))
	}
	if c.Budget > 0 {
		fmt.Fprintf(b, "budget    %s", o.Units.Bytes(c.Budget))
		if c.Net != c.Budget {
			fmt.Fprintf(b, ", of which %s for buffers", o.Units.Bytes(c.Net))
		}
		b.WriteString("\n")
	}
	if c.Fidelity != nil {
		fmt.Fprintf(b, "emulator  %s\n", c.Fidelity.Text(o.Units))
	}
	for _, n := range p.Notes {
		fmt.Fprintf(b, "note      %s\n", n)
	}
	b.WriteString("\n")
}

func name(p *plan.Problem) string {
	if p.Name == "" {
		return "one iteration"
	}
	return p.Name
}

func rate(l plan.Link) string { return fmt.Sprintf("%.3g GB/s", l.BytesPerSecond/1e9) }

// writeTable prints the results that there are.
func (c *Comparison) writeTable(b *strings.Builder, o TextOptions) {
	var largest int64
	for i := range c.Results {
		largest = max(largest, c.Results[i].Measurement.Footprint)
	}
	unit, column := o.Units.Column(largest)
	yes, no, none := "✓", "✗", "–"
	if o.ASCII {
		yes, no, none = "yes", "no", "-"
	}
	t := tabwriter.NewWriter(b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fits := ""
	if c.Budget > 0 {
		fits = "fits\t"
	}
	batches := ""
	if slices.ContainsFunc(c.Results, func(r Result) bool { return r.MaxBatch > 0 }) {
		batches = "max batch\t"
	}
	fmt.Fprintf(t, "manager\texecutor\t%s%s\tover bound\tstep\toverhead\tstall\tout\tin\trecompute\t%splanned in\t\n", fits, unit, batches)
	for i := range c.Results {
		r := &c.Results[i]
		if !r.Available {
			continue
		}
		m := &r.Measurement
		fit := ""
		if c.Budget > 0 {
			fit = map[bool]string{true: yes, false: no}[r.Fits] + "\t"
		}
		over := none
		if r.Plan.LowerBound > 0 {
			over = fmt.Sprintf("%.2f %%", 100*(float64(m.Footprint)/float64(r.Plan.LowerBound)-1))
		}
		step, overhead := none, none
		if c.Problem.HasTimes {
			step, overhead = timeline.Duration(m.StepTime), Percent(r.Overhead)
		}
		size := func(n int64) string {
			if n == 0 {
				return none
			}
			return o.Units.Bytes(n)
		}
		length := func(n int64) string {
			if n == 0 {
				return none
			}
			return timeline.Duration(n)
		}
		largest := ""
		if batches != "" {
			largest = none + "\t"
			if r.MaxBatch > 0 {
				largest = fmt.Sprintf("%s%d\t", map[bool]string{true: "~"}[r.MaxBatchInferred], r.MaxBatch)
			}
		}
		fmt.Fprintf(t, "%s\t%s\t%s%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s%s\t\n", r.Info.Name, r.Executor, fit, column(m.Footprint), over, step, overhead, length(m.Stall), size(m.SwappedOut),
			size(m.SwappedIn), length(m.RecomputeTime), largest, r.Plan.Planning.Round(100*time.Microsecond))
	}
	t.Flush()
	b.WriteString("\n")
}

// writeReasons lists what is not available, managers of one reason together.
func (c *Comparison) writeReasons(b *strings.Builder) {
	var reasons []string
	names := map[string][]string{}
	for i := range c.Results {
		r := &c.Results[i]
		if r.Available {
			continue
		}
		if names[r.Reason] == nil {
			reasons = append(reasons, r.Reason)
		}
		n := r.Info.Name
		if r.Executor != plan.Ideal {
			n += " (" + r.Executor.String() + ")"
		}
		names[r.Reason] = append(names[r.Reason], n)
	}
	for _, reason := range reasons {
		fmt.Fprintf(b, "not available: %s\n  %s\n", strings.Join(names[reason], ", "), reason)
	}
}
