package plan

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/traces"
)

// Family groups managers by what they do.
type Family uint8

// The families, in the order in which they are listed.
const (
	// Baseline managers are online allocators that plan nothing.
	Baseline Family = iota
	// Pooling managers choose addresses.
	Pooling
	// Swapping managers move buffers to the host and back.
	Swapping
	// Recomputing managers drop buffers and run their ops again.
	Recomputing
	// Combining managers do several of these.
	Combining
)

// String returns the family's name on screen.
func (f Family) String() string {
	return [...]string{"baseline", "pooling", "swapping", "recompute", "combined"}[min(f, Combining)]
}

// Info describes a manager.
type Info struct {
	// Name is its name on the command line and in tables.
	Name string
	// After names whose method it is, with the year; "" for a baseline or one of ours.
	After string
	// Ours says that the method is ours.
	Ours   bool
	Family Family
	// Needs is the least detailed kind of recording that suffices for it.
	Needs traces.Kind
	// Reading says which parts are our reading because the source is not public or silent; "" if none are.
	Reading string
	// Summary is one sentence on what it does.
	Summary string
}

// Manager turns a problem into a plan. Managers hold no state between calls and may be used from several
// goroutines.
type Manager interface {
	Info() Info
	// Plan returns a plan that [Validate] accepts. It is a function of the problem, the request's budget,
	// seed and work. If the context is cancelled it returns at once, with the best plan so far, or with the
	// context's error if there is none. A manager that cannot meet the budget returns the plan with the
	// smallest footprint that it found; one that cannot plan the problem returns an error that wraps an
	// [*Unavailable] or a [*TooSmall].
	Plan(ctx context.Context, p *Problem, r Request) (*Plan, error)
}

// Request says what to plan.
type Request struct {
	// Budget is what the plan's memory may take, in bytes: the device's budget minus what lies outside. 0
	// asks for the smallest footprint that costs no time, if a manager has that notion, otherwise for no
	// limit.
	Budget int64
	Seed   uint64
	// Work bounds the search in units that each manager counts for itself (evaluations, nodes); 0 is the
	// manager's own default.
	Work int64
	// Evaluator measures candidates for managers that want a simulator in their loop; nil if there is none.
	Evaluator Evaluator
	// Beat, where positive, is the step time of a plan that the caller has already. A manager may fail with
	// [ErrBeaten] once it is clear that the decisions of its plan alone take longer, by their [Plan.Busy]. A
	// plan that is as fast and fits is never lost to it.
	Beat int64
	// MustFit says that a plan above the budget is of no use, because the caller has one that fits. A manager
	// may fail with [ErrBeaten] once it is clear that its plan would be.
	MustFit bool
	// Known are plans of the problem that the caller has already, such as those for smaller budgets. Our own
	// managers return one of them if they find nothing better that fits.
	Known []*Plan
	// Progress, if not nil, is called with the progress of planning, from one goroutine at a time.
	Progress func(done, total int64)
	// Near, if not nil, receives how much slower than the proven bound the best plan so far is, as a share
	// of the bound. Only managers that prove a bound call it, from the goroutine that calls Progress.
	Near func(gap float64)
}

// ErrBeaten says that a manager's decisions take longer than the request's Beat, or must fit and do not.
var ErrBeaten = errors.New("a better plan is known already; with no time to beat, there is a plan")

// Report calls Progress if there is one.
func (r *Request) Report(done, total int64) {
	if r.Progress != nil {
		r.Progress(done, total)
	}
}

// Evaluator measures a plan, as a simulator does. It is safe for concurrent use.
type Evaluator interface {
	Evaluate(ctx context.Context, p *Problem, pl *Plan) (Measurement, error)
}

// Tracer is an Evaluator that can also say what each queue did when: a measurement with spans, which costs
// more.
type Tracer interface {
	Evaluator
	Trace(ctx context.Context, p *Problem, pl *Plan) (Measurement, error)
}

// Unavailable says why a manager has no plan for a problem, and what to record or to try instead. Without a
// manager's name it speaks of all.
type Unavailable struct{ Manager, Reason string }

// Error implements error.
func (e *Unavailable) Error() string {
	if e.Manager == "" {
		return "no manager can plan for this recording: " + e.Reason
	}
	return fmt.Sprintf("%s is not available here: %s", e.Manager, e.Reason)
}

// TooSmall says that a budget is below what must be resident.
type TooSmall struct {
	Budget, Need int64
	// Held says what needs that memory, such as "parameters and optimizer state alone".
	Held string
}

// Error implements error.
func (e *TooSmall) Error() string {
	need, budget := timeline.IEC.Bytes(e.Need), timeline.IEC.Bytes(e.Budget)
	if need == budget { // rounded, they would seem to fit
		return fmt.Sprintf("not possible: %s need %s, and the budget is %s less", e.Held, need,
			timeline.IEC.Bytes(e.Need-e.Budget))
	}
	return fmt.Sprintf("not possible: %s need %s, and the budget is %s", e.Held, need, budget)
}

// Serve returns an error that wraps an [*Unavailable] if the problem's recording has too little detail for a
// manager.
func (p *Problem) Serve(i Info) error {
	if p.Kind >= i.Needs {
		return nil
	}
	missing := p.Kind.Missing() // what the recording lacks, and what records it
	if p.PackingOnly() {
		missing = traces.PackingOnly
	}
	return &Unavailable{Manager: i.Name, Reason: missing}
}

// PackingOnly says that the problem is a pure storage-allocation problem, without a training behind it, so
// nothing can leave memory.
func (p *Problem) PackingOnly() bool {
	return p.Source != nil && p.Source.Info.Kind == traces.DeviceArena
}

// CheckBudget returns a [*TooSmall] where budget is positive and below what must reside.
func (p *Problem) CheckBudget(budget int64) error {
	if budget <= 0 {
		return nil
	}
	m := p.MustReside()
	switch {
	case m.Persistent > budget:
		return &TooSmall{Budget: budget, Need: m.Persistent, Held: heldWords(p, m, "")}
	case m.Total() > budget:
		return &TooSmall{Budget: budget, Need: m.Total(), Held: heldWords(p, m, p.Ops[m.Op].Name)}
	}
	return nil
}

// inputShare is the share of the persistent bytes above which inputs are named among them.
const inputShare = 0.02

// heldWords names what persists and, unless operands is "", the op whose operands are needed as well. A data
// set in the memory of the device persists too, and may be most of it.
func heldWords(p *Problem, m MustReside, operands string) string {
	held := map[timeline.Category]int64{}
	for i := range p.Buffers {
		if p.Buffers[i].Life == Persistent {
			held[p.Buffers[i].Category] += p.Buffers[i].Size
		}
	}
	var words []string
	if float64(held[timeline.Input]) > inputShare*float64(m.Persistent) {
		words = append(words, "a data set or other inputs")
	}
	switch {
	case held[timeline.Parameter] == 0:
		words = append(words, "the buffers that stay between iterations")
	case held[timeline.OptimizerState] == 0:
		words = append(words, "parameters")
	default:
		words = append(words, "parameters", "optimizer state")
	}
	alone := " alone"
	if operands != "" {
		words, alone = append(words, "the operands of "+operands), ""
	}
	if n := len(words); n > 1 {
		return strings.Join(words[:n-1], ", ") + " and " + words[n-1] + alone
	}
	return words[0] + alone
}
