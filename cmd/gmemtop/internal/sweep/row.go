package sweep

import (
	"io"

	"github.com/gmemtop/gmemtop/timeline/figure/parquet"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

// What became of a unit.
const (
	fits        = "fits"
	tooLarge    = "too large"   // there is a plan, and it takes more than the budget
	impossible  = "impossible"  // the budget is below what every plan must hold
	unavailable = "unavailable" // this manager cannot plan this
	unplannable = "unplannable" // no manager can: the trace cannot be read, or holds no iteration
)

// Row is what one manager's plan takes, as one executor carries it out. Sizes are in bytes and times in
// nanoseconds; a figure that does not apply is unknown.
type Row struct {
	Trace    string    `json:"trace"`
	Hash     string    `json:"trace_sha256"`
	Batch    maybe.Int `json:"batch"`
	Recorded maybe.Int `json:"recorded_batch"`
	// Inferred says that sizes at this batch follow from the recorded ones by a rule.
	Inferred bool   `json:"sizes_inferred"`
	Hardware string `json:"hardware"`
	Manager  string `json:"manager"`
	Family   string `json:"family"`
	Executor string `json:"executor"`
	// Budget is as it was asked for, BudgetBytes what that is here. Held is what a step holds at its peak
	// without a plan, Outside what lies outside of tensors: Held and a budget include it, Footprint does not.
	Budget      string    `json:"budget"`
	BudgetBytes maybe.Int `json:"budget_bytes"`
	Held        maybe.Int `json:"held_bytes"`
	Outside     maybe.Int `json:"outside_bytes"`
	Status      string    `json:"status"`
	Reason      string    `json:"reason"`
	Footprint   maybe.Int `json:"footprint_bytes"`
	// Step is the simulated time of a step, KeepAll that of a step that keeps everything in memory; unknown
	// without a clock in the recording.
	Step          maybe.Int `json:"step_ns"`
	KeepAll       maybe.Int `json:"keep_all_step_ns"`
	TimesInferred bool      `json:"times_inferred"`
	SwappedOut    maybe.Int `json:"swapped_out_bytes"`
	SwappedIn     maybe.Int `json:"swapped_in_bytes"`
	Recomputed    maybe.Int `json:"recompute_ns"`
}

// cell is a column and how its cell is made.
type cell struct {
	parquet.Column
	put func(w *parquet.Writer, key string, r *Row)
}

func text(name string, of func(r *Row) string) cell {
	return cell{parquet.Column{Name: name},
		func(w *parquet.Writer, _ string, r *Row) { w.Text(of(r)) }}
}

func figure(name string, of func(r *Row) maybe.Int) cell {
	return cell{parquet.Column{Name: name, Kind: parquet.Int, Optional: true},
		func(w *parquet.Writer, _ string, r *Row) {
			if v, ok := of(r).Value(); ok {
				w.Int(v)
			} else {
				w.Null()
			}
		}}
}

func truth(name string, of func(r *Row) bool) cell {
	return cell{parquet.Column{Name: name, Kind: parquet.Bool},
		func(w *parquet.Writer, _ string, r *Row) { w.Bool(of(r)) }}
}

// cells are the columns of the table. docs/sweep.md describes them.
var cells = []cell{
	{parquet.Column{Name: "unit"}, func(w *parquet.Writer, key string, _ *Row) { w.Text(key) }},
	text("trace", func(r *Row) string { return r.Trace }),
	text("trace_sha256", func(r *Row) string { return r.Hash }),
	figure("batch", func(r *Row) maybe.Int { return r.Batch }),
	figure("recorded_batch", func(r *Row) maybe.Int { return r.Recorded }),
	truth("sizes_inferred", func(r *Row) bool { return r.Inferred }),
	text("hardware", func(r *Row) string { return r.Hardware }),
	text("manager", func(r *Row) string { return r.Manager }),
	text("family", func(r *Row) string { return r.Family }),
	text("executor", func(r *Row) string { return r.Executor }),
	text("budget", func(r *Row) string { return r.Budget }),
	figure("budget_bytes", func(r *Row) maybe.Int { return r.BudgetBytes }),
	figure("held_bytes", func(r *Row) maybe.Int { return r.Held }),
	figure("outside_bytes", func(r *Row) maybe.Int { return r.Outside }),
	text("status", func(r *Row) string { return r.Status }),
	text("reason", func(r *Row) string { return r.Reason }),
	figure("footprint_bytes", func(r *Row) maybe.Int { return r.Footprint }),
	figure("step_ns", func(r *Row) maybe.Int { return r.Step }),
	figure("keep_all_step_ns", func(r *Row) maybe.Int { return r.KeepAll }),
	{parquet.Column{Name: "overhead", Kind: parquet.Float, Optional: true},
		func(w *parquet.Writer, _ string, r *Row) {
			if x, ok := r.overhead(); ok {
				w.Float(x)
			} else {
				w.Null()
			}
		}},
	truth("times_inferred", func(r *Row) bool { return r.TimesInferred }),
	figure("swapped_out_bytes", func(r *Row) maybe.Int { return r.SwappedOut }),
	figure("swapped_in_bytes", func(r *Row) maybe.Int { return r.SwappedIn }),
	figure("recompute_ns", func(r *Row) maybe.Int { return r.Recomputed }),
}

// overhead is how much longer a step takes than with everything kept, as a share; ok is false if unknown.
func (r *Row) overhead() (share float64, ok bool) {
	step, timed := r.Step.Value()
	base, based := r.KeepAll.Value()
	if !timed || !based || base <= 0 {
		return 0, false
	}
	return float64(step)/float64(base) - 1, true
}

// total is what the plan takes of a device, with what lies outside of tensors; ok is false without a plan.
func (r *Row) total() (bytes int64, ok bool) { return maybe.Sum(r.Footprint, r.Outside).Value() }

// Done is a finished unit: one row, or two if eager PyTorch's plan is not the ideal one.
type Done struct {
	Key  string `json:"unit"`
	Rows []Row  `json:"rows"`
}

// WriteParquet writes finished units as an Apache Parquet file.
func WriteParquet(w io.Writer, list []Done) error {
	var columns []parquet.Column
	for _, c := range cells {
		columns = append(columns, c.Column)
	}
	p, err := parquet.NewWriter(w, "sweep", columns)
	if err != nil {
		return err
	}
	for _, d := range list {
		for i := range d.Rows {
			for _, c := range cells {
				c.put(p, d.Key, &d.Rows[i])
			}
			if err := p.Row(); err != nil {
				return err
			}
		}
	}
	return p.Close()
}
