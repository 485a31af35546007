package replay

import (
	"encoding/json"
	"io"
	"slices"

	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/timeline"
)

// schemaVersion is the version of the comparison's JSON, the same as that of the other reports.
const schemaVersion = 2

// comparisonJSON is what compare --json prints; docs/json.md describes it.
type comparisonJSON struct {
	SchemaVersion int          `json:"schema_version"`
	Problem       problemJSON  `json:"problem"`
	BudgetBytes   int64        `json:"budget_bytes"`
	NetBytes      int64        `json:"net_budget_bytes"`
	Hardware      hardwareJSON `json:"hardware"`
	StepTime      int64        `json:"keep_all_step_time_ns"`
	Sentence      string       `json:"sentence"`
	// Fidelity is null for a problem that does not come from a recording.
	Fidelity *fidelityJSON `json:"fidelity"`
	// BatchNotes say what the largest batches are based on.
	BatchNotes []string `json:"max_batch_notes,omitempty"`
	// Smallest is nil if something fits, or if no smallest budget was looked for or found.
	Smallest *smallestJSON `json:"smallest_budget,omitempty"`
	// Runnable is the same for a plan that PyTorch can run today, nil if Smallest is for one.
	Runnable *smallestJSON `json:"smallest_runnable_budget,omitempty"`
	Results  []resultJSON  `json:"results"`
}

type smallestJSON struct {
	Bytes    int64   `json:"bytes"`
	Manager  string  `json:"manager"`
	Executor string  `json:"executor"`
	Overhead float64 `json:"overhead"`
	Command  string  `json:"command"`
}

func (s *Smallest) json() *smallestJSON {
	if s == nil {
		return nil
	}
	r := &s.Result
	return &smallestJSON{s.Budget, r.Info.Name, r.Executor.String(), r.Overhead, s.Command}
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
	Manager     string  `json:"manager"`
	After       string  `json:"after"`
	Family      string  `json:"family"`
	Executor    string  `json:"executor"`
	Target      string  `json:"target"`
	Available   bool    `json:"available"`
	Reason      string  `json:"reason"`
	Fits        bool    `json:"fits"`
	Valid       bool    `json:"valid"`
	Footprint   int64   `json:"footprint_bytes"`
	Reserved    int64   `json:"reserved_bytes"`
	LowerBound  int64   `json:"lower_bound_bytes"`
	StepTime    int64   `json:"step_time_ns"`
	StepP95     int64   `json:"step_time_p95_ns"`
	StepBound   int64   `json:"step_time_bound_ns"`
	Overhead    float64 `json:"overhead"`
	Stall       int64   `json:"stall_ns"`
	Out         int64   `json:"swapped_out_bytes"`
	In          int64   `json:"swapped_in_bytes"`
	Recompute   int64   `json:"recompute_ns"`
	Pinned      int64   `json:"pinned_peak_bytes"`
	Stopped     bool    `json:"stopped_early,omitempty"`
	MaxBatch    *int    `json:"max_batch,omitempty"`
	BatchGuess  bool    `json:"max_batch_inferred,omitempty"`
	DriverCalls int64   `json:"driver_calls"`
	Retries     int64   `json:"retries"`
	// Figures that only a device measures.
	Verified      bool     `json:"verified,omitempty"`
	Process       int64    `json:"process_bytes,omitempty"`
	ProcessBefore int64    `json:"process_before_bytes,omitempty"`
	Predicted     int64    `json:"footprint_predicted_bytes,omitempty"`
	KeepAllBefore int64    `json:"keep_all_before_ns,omitempty"`
	KeepAllAfter  int64    `json:"keep_all_after_ns,omitempty"`
	Work          *float64 `json:"work_overhead,omitempty"`
	OutRate       float64  `json:"swapped_out_bytes_per_s,omitempty"`
	InRate        float64  `json:"swapped_in_bytes_per_s,omitempty"`
	Dry           int64    `json:"launches_found_idle,omitempty"`
	Launches      int64    `json:"launches,omitempty"`
	Causes        []string `json:"causes,omitempty"`
	Planning      int64    `json:"planning_ns"`
	Notes         []string `json:"notes"`
}

// WriteJSON writes the comparison as docs/json.md describes it.
func (c *Comparison) WriteJSON(w io.Writer, u timeline.Units) error {
	p := c.Problem
	live, _ := p.PeakLive()
	out := comparisonJSON{SchemaVersion: schemaVersion, BudgetBytes: c.Budget, NetBytes: c.Net,
		StepTime: c.Baseline, Sentence: c.Sentence(u), Fidelity: c.Fidelity.json(), BatchNotes: c.BatchNotes,
		Problem: problemJSON{Name: p.Name, Buffers: len(p.Buffers), Ops: len(p.Ops), Iterations: p.Iterations,
			PeakLive: live, MustReside: plan.LeastResident(p), Outside: p.Outside, StepTime: c.Baseline,
			Kind: p.Kind.String(), Notes: append([]string{}, c.notes(u)...)},
		Hardware: hardwareJSON{p.Hardware.Name, p.Hardware.Origin, p.Hardware.D2H.BytesPerSecond,
			p.Hardware.H2D.BytesPerSecond},
		Results: []resultJSON{}}
	if s := c.Smallest; s != nil {
		out.Smallest, out.Runnable = s.json(), s.Runnable.json()
	}
	for _, r := range slices.Concat(pointers(c.Results), pointers(c.Measured)) {
		m := &r.Measurement
		j := resultJSON{Manager: r.Info.Name, After: r.Info.After, Family: r.Info.Family.String(),
			Executor: r.Executor.String(), Target: r.Target, Available: r.Available, Reason: r.Reason,
			Fits: r.Fits, Valid: r.Valid, Footprint: m.Footprint, Reserved: m.Reserved, StepTime: m.StepTime,
			StepP95: m.StepP95, Overhead: r.Overhead, Stall: m.Stall, Out: m.SwappedOut, In: m.SwappedIn,
			Recompute: m.RecomputeTime, Pinned: m.PinnedPeak, BatchGuess: r.MaxBatchInferred,
			DriverCalls: m.DriverCalls, Retries: m.Retries, Notes: r.notes(), Stopped: r.Stopped}
		j.Verified, j.KeepAllBefore, j.KeepAllAfter = m.Verified, m.KeepAllBefore, m.KeepAllAfter
		j.Process, j.ProcessBefore = m.Process, m.ProcessBefore
		j.OutRate, j.InRate, j.Dry, j.Launches = m.OutRate, m.InRate, m.Dry, m.Launches
		if s := c.Simulated(r); s != nil && s != r && r.Available {
			j.Predicted = Predicted(m, &s.Measurement)
			if p.HasTimes && Outside(r, s) {
				j.Causes = c.Causes(r, s)
			}
		}
		if r.Worked {
			j.Work = &r.Work
		}
		if r.MaxBatchKnown {
			j.MaxBatch = &r.MaxBatch
		}
		if r.Plan != nil {
			j.LowerBound, j.StepBound, j.Planning = r.Plan.LowerBound, r.Plan.StepBound,
				r.Plan.Planning.Nanoseconds()
		}
		out.Results = append(out.Results, j)
	}
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(out)
}
