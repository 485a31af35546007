package milp

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"
)

// Solver names which program solves a model.
type Solver uint8

const (
	// SolverAuto takes an executable of HiGHS found on PATH, which is the embedded solver at twice its speed,
	// and otherwise the embedded one. It does not take another program's executable: they are not faster, and
	// answer differently.
	SolverAuto Solver = iota
	// SolverWASM takes the embedded HiGHS, which answers alike on every machine.
	SolverWASM
	// SolverNative takes the executable of HiGHS, CBC or GLPK, the first of these found on PATH.
	SolverNative
)

// Status says what is known about a model after [Solve].
type Status uint8

const (
	// StatusUnknown means no feasible point was found, and none was proved not to exist.
	StatusUnknown Status = iota
	// StatusOptimal means X is feasible and its cost is within Options.Gap of the least possible one.
	StatusOptimal
	// StatusFeasible means X is feasible, and a limit stopped the proof that it is the best.
	StatusFeasible
	// StatusInfeasible means no point satisfies the model, in the solver's word.
	StatusInfeasible
	// StatusUnbounded means feasible points cost as little as one likes, in the solver's word.
	StatusUnbounded
)

// String returns the status in one lower-case word.
func (s Status) String() string {
	switch s {
	case StatusUnknown:
		return "unknown"
	case StatusOptimal:
		return "optimal"
	case StatusFeasible:
		return "feasible"
	case StatusInfeasible:
		return "infeasible"
	case StatusUnbounded:
		return "unbounded"
	}
	return fmt.Sprintf("status(%d)", uint8(s))
}

// defaultTimeLimit is the safety net under a solve whose options name no TimeLimit.
const defaultTimeLimit = 5 * time.Minute

// defaultMaxMemory is the memory, in bytes, of one solve whose options name no MaxMemory: all that a 32-bit
// WebAssembly build uses.
const defaultMaxMemory = 2 << 30

// Options says how far to go and with which solver. The zero value asks for a proof of optimality from the
// machine's preferred solver.
type Options struct {
	// Gap is the relative distance (objective-bound)/|objective| at which a mixed-integer model counts as
	// solved. 0 asks for a proof, which interval knapsacks of a few hundred variables may deny for hours:
	// 0.01 is a sensible value for planning.
	Gap float64
	// TimeLimit is a wall-clock limit; 0 means defaultTimeLimit. A solve that it stops is not reproducible.
	TimeLimit time.Duration
	// MaxNodes bounds the nodes of the search tree; 0 means no limit. The nodes are counted, so the answer is
	// reproducible, but the root node of a hard model may itself take long.
	MaxNodes int64
	// MaxWork bounds the embedded solver's reads of its clock; 0 means no limit. The reads are counted work,
	// spread over all phases of the solver, and the answer is reproducible. A read stands for 0.1 ms of a
	// small model to 2 ms of one with a million entries. Native solvers have no such count, so with MaxWork
	// set SolverAuto takes the embedded one and SolverNative is an error.
	MaxWork int64
	// MaxMemory bounds the memory of the embedded solver in bytes; 0 means defaultMaxMemory, which is also
	// the most it can use.
	MaxMemory int64
	// Threads is how many threads a native solver may use; 0 means one. The embedded solver has one.
	Threads int
	// Start is a feasible point to begin from, one value per variable, or nil. The embedded solver begins its
	// search from it; native ones do not. It is returned if nothing better is found. A point that is not
	// feasible is an error.
	Start []float64
	// Basis is the starting basis of a linear solve: that of an earlier solve of a model with the same
	// variables and rows, whose bounds and costs may differ. A few changed bounds then cost a few steps
	// instead of a whole solve. Native solvers do not use it. nil for none.
	Basis *Basis
	// Solver chooses between the embedded solver and native ones.
	Solver Solver
	// LPOnly drops the wholeness of all variables and so solves the linear relaxation, whose row duals are
	// prices for the rows.
	LPOnly bool
}

// Solution is what [Solve] found out.
type Solution struct {
	Status Status
	// Objective is the cost of X, computed from the model; +Inf without an X.
	Objective float64
	// Bound is a lower bound on the cost of every feasible point. For a linear model it is computed from
	// Dual, which proves it; for a mixed-integer one it is the solver's word. -Inf when none is known, and
	// +Inf for an infeasible model.
	Bound float64
	// Gap is (Objective-Bound)/|Objective|: 0 if the two agree, +Inf if nothing is known.
	Gap float64
	// X is a feasible point, checked with Model.Check, or nil. Whole variables are exactly whole.
	X []float64
	// Dual has, for a linear model solved to optimality, the dual value of each row: by how much the least
	// cost grows for each unit by which the row's binding bound is raised. It is >= 0 where the lower bound
	// binds, <= 0 where the upper one does, and nil for a mixed-integer model.
	Dual []float64
	// Basis is the final basis of the embedded solver for a linear model that it solved to optimality, from
	// which the next solve can begin; otherwise nil.
	Basis *Basis
	// Nodes is the number of nodes of the search tree visited.
	Nodes int64
	// Work is the number of times the embedded solver read its clock, the unit of Options.MaxWork; 0 for
	// native solvers.
	Work int64
	// Solver names the program and version that was used.
	Solver string
}

// Basis says for each variable and row of a linear model whether it is at a bound or determined by the
// others.
type Basis struct{ vars, rows []int32 }

// answer is a solver's claim, in the caller's scale but unchecked.
type answer struct {
	status Status
	either bool // infeasible or unbounded, and the solver does not know which
	bound  float64
	x      []float64
	dual   []float64
	basis  *Basis
	nodes  int64
	work   int64
	solver string
}

// nothing is the answer of a solver that failed.
func nothing(solver string) answer { return answer{solver: solver, bound: math.Inf(-1)} }

// task is one run of a solver on one model.
type task struct {
	*Model
	Options
	deadline time.Time
	feastol  float64 // how far from integer a variable may be, in the solver's eyes
}

// backend runs a solver. When ctx ends or the deadline passes it returns at once, without an error and with
// what it has by then.
type backend func(ctx context.Context, t task) (answer, error)

// Solve minimises the model. It returns an error if the model or the options are malformed, if the solver
// failed, or if its answer did not stand up to [Model.Check]; reaching a limit is no error. When ctx ends,
// Solve stops at once and returns an error that wraps the context's, together with the best point known by
// then, whose Status is StatusFeasible.
//
// Solve may be called from many goroutines at once; as many embedded solvers run as there are processors, and
// others wait.
func Solve(ctx context.Context, m *Model, o Options) (Solution, error) {
	if m == nil {
		return unsolved(), errors.New("milp: no model: give one")
	}
	run, native, err := o.backend(m)
	if err != nil {
		return unsolved(), err
	}
	s, err := solveWith(ctx, m, o, run)
	if err != nil && native && o.Solver == SolverAuto && ctx.Err() == nil {
		// The program named highs on this machine may be anything. The embedded solver needs none.
		return solveWith(ctx, m, o, runWASM)
	}
	return s, err
}

// solveWith is Solve by a given solver.
func solveWith(ctx context.Context, m *Model, o Options, run backend) (Solution, error) {
	if err := o.complete(m); err != nil {
		return unsolved(), err
	}
	if s, ok := m.trivial(); ok {
		return s, nil
	}
	t := task{Model: m, Options: o, deadline: time.Now().Add(o.TimeLimit), feastol: tolerance}
	s, err := solve(ctx, t, run)
	if err == nil && ctx.Err() != nil && (s.Status == StatusUnknown || s.Status == StatusFeasible) {
		err = fmt.Errorf("milp: solve stopped: %w", ctx.Err())
	}
	return s, err
}

// unsolved returns a solution of which nothing is known.
func unsolved() Solution {
	return Solution{Objective: math.Inf(1), Bound: math.Inf(-1), Gap: math.Inf(1)}
}

// trivial answers the two kinds of model that solvers disagree about: without variables, and with bounds that
// cross.
func (m *Model) trivial() (s Solution, ok bool) {
	s = unsolved()
	switch {
	case m.crossed() || m.NumVars() == 0 && m.Check([]float64{}, false) != nil:
		s.Status, s.Bound = StatusInfeasible, math.Inf(1)
	case m.NumVars() == 0:
		s.Status, s.Objective, s.Bound, s.Gap = StatusOptimal, 0, 0, 0
		s.X, s.Dual = []float64{}, make([]float64, m.NumRows())
	default:
		return s, false
	}
	return s, true
}

// complete checks the options and fills in the defaults.
func (o *Options) complete(m *Model) error {
	switch {
	case m.err != nil:
		return m.err
	case math.IsNaN(o.Gap) || o.Gap < 0:
		return fmt.Errorf("milp: gap %v: give a number from 0, such as 0.01", o.Gap)
	case o.TimeLimit < 0 || o.MaxNodes < 0 || o.MaxWork < 0 || o.MaxMemory < 0 || o.Threads < 0:
		return errors.New("milp: negative limit: give a positive one, or 0 for the default")
	case o.Solver > SolverNative:
		return fmt.Errorf("milp: unknown solver %d: take auto, wasm or native", uint8(o.Solver))
	}
	if o.Start != nil {
		if err := m.violation(o.Start, o.LPOnly); err != nil {
			return fmt.Errorf("milp: the start is not feasible: %w", err)
		}
	}
	if o.Basis != nil && (len(o.Basis.vars) != m.NumVars() || len(o.Basis.rows) != m.NumRows()) {
		return fmt.Errorf("milp: a basis of %d variables and %d rows for a model of %d and %d: take that "+
			"of a model of the same shape",
			len(o.Basis.vars), len(o.Basis.rows), m.NumVars(), m.NumRows())
	}
	if o.TimeLimit == 0 {
		o.TimeLimit = defaultTimeLimit
	}
	if o.MaxMemory == 0 || o.MaxMemory > defaultMaxMemory {
		o.MaxMemory = defaultMaxMemory
	}
	o.Threads = max(1, o.Threads)
	return nil
}

// backend chooses the solver; native tells whether it is an executable.
func (o *Options) backend(m *Model) (run backend, native bool, err error) {
	switch o.Solver {
	case SolverWASM:
		return runWASM, false, nil
	case SolverNative:
		if o.MaxWork > 0 {
			return nil, false, errors.New("milp: native solvers do not count work: take " +
				"MaxNodes or the wasm solver")
		}
		for _, p := range programs {
			if path, ok := p.find(m, o); ok {
				return p.run(path), true, nil
			}
		}
		return nil, false, errors.New("milp: no native solver for this model on PATH: install highs, " +
			"or take the wasm solver")
	}
	if o.MaxWork == 0 {
		if path, ok := highsProgram.find(m, o); ok {
			return highsProgram.run(path), true, nil
		}
	}
	return runWASM, false, nil
}

// tightFeastol is how far from integer a variable may be in the second attempt, after the first answer did
// not survive rounding.
const tightFeastol = 1e-9

// solve runs the solver and turns its claim into a checked solution.
func solve(ctx context.Context, t task, run backend) (Solution, error) {
	a, err := run(ctx, t)
	if err != nil {
		return t.assemble(nothing(a.solver)), err
	}
	if a.either {
		if err := t.unboundedOrInfeasible(ctx, &a, run); err != nil {
			return t.assemble(nothing(a.solver)), err
		}
	}
	if a.status == StatusInfeasible && t.Start != nil {
		return t.assemble(nothing(a.solver)), fmt.Errorf(
			"milp: %s calls a model infeasible that its start satisfies", a.solver)
	}
	bad := t.checked(ctx, &a)
	if bad != nil && ctx.Err() == nil && time.Now().Before(t.deadline) {
		tight, first := t, a
		tight.feastol = tightFeastol
		if a, err = run(ctx, tight); err != nil {
			return t.assemble(nothing(first.solver)), err
		}
		a.nodes, a.work = a.nodes+first.nodes, a.work+first.work
		bad = t.checked(ctx, &a)
	}
	if bad != nil {
		a.x, a.dual, a.status = nil, nil, StatusUnknown
		s := t.assemble(a)
		if ctx.Err() != nil || s.X != nil {
			return s, nil
		}
		return s, fmt.Errorf("milp: the answer of %s does not stand up: %w", a.solver, bad)
	}
	return t.assemble(a), nil
}

// unboundedOrInfeasible settles a claim of "one of the two" by solving for a point of any cost.
func (t task) unboundedOrInfeasible(ctx context.Context, a *answer, run backend) error {
	free := t
	free.Model, free.Start, free.Basis = t.withCost(make([]float64, t.NumVars())), nil, nil
	b, err := run(ctx, free)
	a.nodes, a.work = a.nodes+b.nodes, a.work+b.work
	switch {
	case err != nil:
		return err
	case b.status == StatusInfeasible || b.either:
		a.status = StatusInfeasible
	case b.x != nil:
		a.status = StatusUnbounded
	}
	return nil
}

// checked settles and checks the answer's point, if it has one. A point that fails only because its whole
// variables were rounded is repaired: they are held at their whole values, and the embedded solver solves for
// the others again.
func (t task) checked(ctx context.Context, a *answer) error {
	if a.x == nil {
		return nil
	}
	raw := append([]float64(nil), a.x...)
	near := t.settle(a.x, t.LPOnly)
	err := t.violation(a.x, t.LPOnly)
	if err == nil || !near || t.LPOnly || ctx.Err() != nil || !t.hasIntegers() {
		return err
	}
	lower, upper := append([]float64(nil), t.lower...), append([]float64(nil), t.upper...)
	continuous := false
	for j, whole := range t.integer {
		if whole {
			v := min(max(math.Round(raw[j]), lower[j]), upper[j])
			lower[j], upper[j] = v, v
		} else {
			continuous = true
		}
	}
	if !continuous {
		return err
	}
	held := t
	held.Model = t.withBounds(lower, upper, make([]bool, len(t.integer)))
	held.LPOnly, held.Start, held.Basis, held.MaxNodes, held.MaxWork = true, nil, nil, 0, 0
	b, rerr := runWASM(ctx, held)
	a.work += b.work
	if rerr != nil || b.x == nil {
		return errors.Join(err, rerr)
	}
	a.x = b.x
	t.settle(a.x, false)
	return t.violation(a.x, false)
}

// assemble turns a checked answer into a solution: it computes cost and gap, and replaces a worse point by
// the start.
func (t task) assemble(a answer) Solution {
	s := unsolved()
	s.Status, s.X, s.Nodes, s.Work, s.Solver = a.status, a.x, a.nodes, a.work, a.solver
	linear := t.LPOnly || !t.hasIntegers()
	switch {
	case a.status == StatusInfeasible:
		s.Bound = math.Inf(1)
		return s
	case a.status == StatusUnbounded:
		s.Objective = math.Inf(-1)
		return s
	case linear && a.dual != nil:
		s.Dual, s.Basis = a.dual, a.basis
		s.Bound = t.dualBound(a.dual)
	case !linear && !math.IsNaN(a.bound):
		s.Bound = a.bound
	}
	if s.X != nil {
		s.Objective = t.Objective(s.X)
	}
	if t.Start != nil && (s.X == nil || t.Objective(t.Start) < s.Objective) {
		s.X, s.Objective = append([]float64(nil), t.Start...), t.Objective(t.Start)
		s.Dual, s.Basis = nil, nil
	}
	if s.X == nil {
		s.Status = StatusUnknown
		return s
	}
	s.Bound = min(s.Bound, s.Objective)
	s.Gap = relativeGap(s.Objective, s.Bound)
	if s.Status == StatusUnknown {
		s.Status = StatusFeasible
	}
	if !linear && s.Status == StatusOptimal && s.Gap > t.Gap+tolerance &&
		s.Objective-s.Bound > tolerance/scaleOf(t.cost) {
		s.Status = StatusFeasible // the repaired point, or the bound, is short of what the solver claimed
	}
	return s
}
