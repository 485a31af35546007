package milp

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"sync"
	"time"
)

// HighsStatus, HighsModelStatus and SolutionStatus, as far as they are told apart here.
const (
	highsError = -1

	highsModelEmpty            = 6
	highsOptimal               = 7
	highsInfeasible            = 8
	highsUnboundedOrInfeasible = 9
	highsUnbounded             = 10
	// objective bound, objective target, time, iterations, unknown, solutions, interrupt
	highsFirstLimit = 11
	highsLastLimit  = 17

	highsPointFeasible = 2
	highsBasisValid    = 1
)

// runWASM is the backend of the embedded solver.
func runWASM(ctx context.Context, t task) (answer, error) {
	ctx, cancel := context.WithDeadline(ctx, t.deadline)
	defer cancel()
	// Compiling cannot be interrupted, but need not be waited for: it continues for the next solve.
	type made struct {
		*machine
		error
	}
	ready := make(chan made, 1)
	go func() {
		m, err := compile()
		ready <- made{m, err}
	}()
	var m made
	select {
	case m = <-ready:
	case <-ctx.Done():
		return answer{bound: math.Inf(-1)}, nil
	}
	if m.error != nil {
		return answer{}, m.error
	}
	return m.solve(ctx, t)
}

// handOver is how long a solver that was told to stop may take to hand over what it has. Past that, Solve
// returns without it, and the instance ends by itself at its next look at the clock.
const handOver = time.Second

// solve solves the task on an instance of its own, as soon as there is a place for one.
func (m *machine) solve(ctx context.Context, t task) (answer, error) {
	none := answer{bound: math.Inf(-1), solver: m.name}
	slots := instances()
	select {
	case slots <- struct{}{}:
	case <-ctx.Done():
		return none, nil
	}
	type result struct {
		answer
		error
	}
	done := make(chan result, 1)
	// closed once the model is no longer needed, so that its owner may change it
	handed := make(chan struct{})
	go func() {
		defer func() { <-slots }()
		a, err := m.run(ctx, t, handed)
		done <- result{a, err}
	}()
	select {
	case r := <-done:
		return r.answer, r.error
	case <-ctx.Done():
	}
	timer := time.NewTimer(handOver)
	defer timer.Stop()
	select {
	case r := <-done:
		return r.answer, r.error
	case <-timer.C:
	}
	select {
	case r := <-done:
		return r.answer, r.error
	case <-handed:
		return none, nil
	}
}

// run runs HiGHS on the task; the model is read only until handed is closed.
func (m *machine) run(ctx context.Context, t task, handed chan<- struct{}) (answer, error) {
	release := sync.OnceFunc(func() { close(handed) })
	defer release()
	a := answer{bound: math.Inf(-1), solver: m.name}
	in, err := m.newInstance(t.MaxMemory)
	if err != nil {
		return a, err
	}
	defer in.close()
	if t.MaxWork > 0 {
		in.maxReads = t.MaxWork
	}
	defer context.AfterFunc(ctx, func() { in.stop.Store(true) })()

	scale := t.scaling()
	shape := shape{vars: t.NumVars(), rows: t.NumRows(), integers: !t.LPOnly && t.hasIntegers()}
	h := in.call("Highs_create")
	in.setOptions(h, t)
	in.pass(h, t, scale, shape)
	release()

	ran := int32(uint32(in.call("Highs_run", h)))
	status := int32(uint32(in.call("Highs_getModelStatus", h)))
	a.work = in.reads
	switch {
	case in.err == errStopped:
		return a, nil // it had its chance to return what it had
	case in.err != nil:
		return a, in.err
	case ran == highsError:
		return a, fmt.Errorf("milp: HiGHS failed on the model with model status %d", status)
	}
	in.read(h, &a, scale, shape)
	switch status {
	case highsModelEmpty, highsOptimal:
		a.status = StatusOptimal
	case highsInfeasible:
		a.status = StatusInfeasible
	case highsUnbounded:
		a.status = StatusUnbounded
	case highsUnboundedOrInfeasible:
		a.either = true
	default:
		if status < highsFirstLimit || status > highsLastLimit {
			return a, fmt.Errorf("milp: HiGHS failed on the model with model status %d", status)
		}
		if a.x != nil {
			a.status = StatusFeasible
		}
	}
	if a.status != StatusOptimal {
		a.dual, a.basis = nil, nil
	}
	if a.status != StatusOptimal && a.status != StatusFeasible {
		a.x = nil
	}
	return a, in.err
}

// shape is what remains known of a model once it was handed over.
type shape struct {
	vars, rows int
	integers   bool // and not relaxed
}

// setOptions sets HiGHS' options; the clock enforces the limits of time and work.
func (in *instance) setOptions(h uint64, t task) {
	set := func(export, name string, value uint64) {
		p := in.putString(name)
		if status := int32(uint32(in.call(export, h, p, value))); status == highsError && in.err == nil {
			in.err = fmt.Errorf("milp: HiGHS does not know the option %s", name)
		}
		in.free(p)
	}
	set("Highs_setBoolOptionValue", "output_flag", 0)
	set("Highs_setDoubleOptionValue", "time_limit", math.Float64bits(virtualLimit))
	set("Highs_setDoubleOptionValue", "mip_rel_gap", math.Float64bits(t.Gap))
	set("Highs_setDoubleOptionValue", "mip_feasibility_tolerance", math.Float64bits(t.feastol))
	if t.MaxNodes > 0 {
		set("Highs_setIntOptionValue", "mip_max_nodes", uint64(min(t.MaxNodes, math.MaxInt32)))
	}
}

// pass hands the model over, scaled, and the point to start from.
func (in *instance) pass(h uint64, t task, scale scaling, shape shape) {
	const rowWise, minimise = 2, 1
	byRow := func(i int) float64 { return scale.rows[i] }
	row := 0
	args := []uint64{
		in.putFloats(t.cost, func(int) float64 { return scale.cost }),
		in.putFloats(t.lower, nil),
		in.putFloats(t.upper, nil),
		in.putFloats(t.rowLower, byRow),
		in.putFloats(t.rowUpper, byRow),
		in.putInts(t.start),
		in.putInts(t.index),
		in.putFloats(t.value, func(k int) float64 {
			for row+1 < len(t.start) && k >= int(t.start[row+1]) {
				row++
			}
			return scale.rows[row]
		}),
		0,
	}
	if shape.integers {
		kinds := make([]int32, len(t.integer))
		for j, whole := range t.integer {
			if whole {
				kinds[j] = 1
			}
		}
		args[8] = in.putInts(kinds)
	}
	head := []uint64{h, uint64(shape.vars), uint64(shape.rows), uint64(len(t.index)), rowWise, minimise, 0}
	if status := int32(uint32(in.call("Highs_passMip", append(head, args...)...))); status == highsError &&
		in.err == nil {
		in.err = fmt.Errorf("milp: HiGHS does not take the model")
	}
	in.free(args...)
	if t.Start != nil && shape.integers {
		x := in.putFloats(t.Start, nil)
		in.call("Highs_setSolution", h, x, 0, 0, 0)
		in.free(x)
	}
	if t.Basis != nil && !shape.integers {
		cols, rows := in.putInts(t.Basis.vars), in.putInts(t.Basis.rows)
		in.call("Highs_setBasis", h, cols, rows) // if it refuses one, it starts without
		in.free(cols, rows)
	}
}

// read takes point, duals, bound and nodes from HiGHS, scaled back.
func (in *instance) read(h uint64, a *answer, scale scaling, shape shape) {
	if shape.integers {
		a.bound = in.doubleInfo(h, "mip_dual_bound") / scale.cost
		a.nodes = max(0, in.int64Info(h, "mip_node_count"))
	}
	if in.intInfo(h, "primal_solution_status") != highsPointFeasible {
		return
	}
	n, k := shape.vars, shape.rows
	x, d, r, y := in.alloc(8*n), in.alloc(8*n), in.alloc(8*k), in.alloc(8*k)
	in.call("Highs_getSolution", h, x, d, r, y)
	a.x = in.floats(x, n)
	if !shape.integers && in.intInfo(h, "dual_solution_status") == highsPointFeasible {
		a.dual = in.floats(y, k)
		scale.unscale(a.dual)
	}
	in.free(x, d, r, y)
	if !shape.integers && in.intInfo(h, "basis_validity") == highsBasisValid {
		cols, rows := in.alloc(4*n), in.alloc(4*k)
		in.call("Highs_getBasis", h, cols, rows)
		if b := (&Basis{vars: in.ints(cols, n), rows: in.ints(rows, k)}); in.err == nil {
			a.basis = b
		}
		in.free(cols, rows)
	}
}

// info reads one figure of HiGHS' information into 8 bytes; HiGHS has no such figure for a model it did not
// run on, and then they are 0.
func (in *instance) info(export string, h uint64, name string) uint64 {
	p, out := in.putString(name), in.alloc(8)
	if b := in.view(out, 8); b != nil {
		clear(b)
	}
	in.call(export, h, p, out)
	var v uint64
	if b := in.view(out, 8); b != nil {
		v = binary.LittleEndian.Uint64(b)
	}
	in.free(p, out)
	return v
}

func (in *instance) intInfo(h uint64, name string) int32 {
	return int32(uint32(in.info("Highs_getIntInfoValue", h, name)))
}

func (in *instance) int64Info(h uint64, name string) int64 {
	return int64(in.info("Highs_getInt64InfoValue", h, name))
}

func (in *instance) doubleInfo(h uint64, name string) float64 {
	return math.Float64frombits(in.info("Highs_getDoubleInfoValue", h, name))
}
