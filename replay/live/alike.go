package live

import (
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/gmemtop/gmemtop/capture/say"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/traces"
)

// ErrUneven means that the described steps differ from each other: only steps that ran alike can be planned.
var ErrUneven = errors.New(say.Uneven.Text())

// errSettling wraps [ErrUneven] if only the optimizer's ops differ: LBFGS does more in each step until its
// history is full.
var errSettling = fmt.Errorf("%w %s", ErrUneven, say.UnevenOptimizer.Text())

// stepMarks yields the marks of the trace's steps, in order.
func stepMarks(tr *traces.Trace) iter.Seq[traces.Mark] {
	return func(yield func(traces.Mark) bool) {
		for _, m := range tr.Marks {
			if m.Kind == traces.MarkIteration && !yield(m) {
				return
			}
		}
	}
}

// touchedBy returns, for each op with accesses, the address that the last of them touches.
func touchedBy(tr *traces.Trace) map[traces.OpID]uint64 {
	touches := map[traces.OpID]uint64{}
	for _, a := range tr.Accesses {
		touches[a.Op] = a.Addr
	}
	return touches
}

// aside bounds what an op may write, in bytes, to be left out of the comparison of steps.
const aside = 64 << 10

// inCommon returns the ops of each step that the other steps must have too: all of its own, except small ones
// of the forward pass that run outside of all modules. A sampler draws new numbers in some steps only, and a
// logger adds up losses every so often. The process does not count these ops either, because it only counts
// what modules run.
//
// Where batches vary in shape, the same op may be small in one step and large in another. So if the steps
// differ then, an op also counts if an op of its name is large in any step, if with these they are alike for
// longer.
func inCommon(tr *traces.Trace) [][]traces.OpID {
	wrote := written(tr)
	outside := func(id traces.OpID) bool {
		op := &tr.Ops[id]
		name := tr.Text(op.Name)
		return tr.Text(op.Module) == "" && op.Phase == traces.PhaseForward && name != plan.SaveOp &&
			name != plan.LoadOp
	}
	var own [][]traces.OpID
	large := map[traces.StringID]bool{}
	for m := range stepMarks(tr) {
		ops := ownOps(tr, m, false)
		own = append(own, ops)
		for _, id := range ops {
			if outside(id) && wrote[id] > aside {
				large[tr.Ops[id].Name] = true
			}
		}
	}
	without := func(gone func(id traces.OpID) bool) [][]traces.OpID {
		out := make([][]traces.OpID, len(own))
		for i, ops := range own {
			out[i] = ops // a program without modules, or the optimizer's step alone
			if slices.ContainsFunc(ops, func(id traces.OpID) bool {
				return tr.Text(tr.Ops[id].Module) != ""
			}) {
				out[i] = slices.DeleteFunc(slices.Clone(ops), gone)
			}
		}
		return out
	}
	small := without(func(id traces.OpID) bool { return outside(id) && wrote[id] <= aside })
	at := shared(tr, small)
	if at < 0 {
		return small
	}
	byName := without(func(id traces.OpID) bool { return outside(id) && !large[tr.Ops[id].Name] })
	if n := shared(tr, byName); n < 0 || n > at {
		return byName
	}
	return small
}

// shared returns how many ops the steps begin with in common, -1 if that is all of them.
func shared(tr *traces.Trace, steps [][]traces.OpID) int {
	least := -1
	for _, ops := range steps {
		if n := diverge(tr, steps[0], ops); n >= 0 && (least < 0 || n < least) {
			least = n
		}
	}
	return least
}

// diverge returns the first place at which two lists have ops of different names, -1 if there is none.
func diverge(tr *traces.Trace, a, b []traces.OpID) int {
	for i := range max(len(a), len(b)) {
		if i >= len(a) || i >= len(b) || tr.Ops[a[i]].Name != tr.Ops[b[i]].Name {
			return i
		}
	}
	return -1
}

// alike returns an error if the steps do not run the same ops in the same order, or if there are fewer than
// two.
func alike(tr *traces.Trace) error {
	steps := inCommon(tr)
	for _, ops := range steps {
		if err := difference(tr, steps[0], ops); err != nil {
			return err
		}
	}
	if len(steps) < 2 {
		return fmt.Errorf("%w: %s", ErrUneven, say.TooFewSteps.Text(len(steps)))
	}
	return nil
}

// difference compares the names of the ops of two steps, in order. Its error says where they diverge, and
// where tensor sizes differ before that, because batches of varying shapes are then the cause.
func difference(tr *traces.Trace, a, b []traces.OpID) error {
	i := diverge(tr, a, b)
	if i < 0 {
		return nil
	}
	uneven := ErrUneven
	if optimizes(tr, a, i) && optimizes(tr, b, i) {
		uneven = errSettling
	}
	return fmt.Errorf("%w: %s", uneven, say.FirstDifference.Text(
		len(a), len(b), i+1, named(tr, a, i), named(tr, b, i),
		why(tr, a[:min(i, len(a))], b[:min(i, len(b))])))
}

// crosses reports whether a step needs what autograd saved before the step.
func crosses(tr *traces.Trace) bool {
	touches := touchedBy(tr)
	for m := range stepMarks(tr) {
		saved := map[uint64]bool{}
		for i := range tr.Ops {
			op := &tr.Ops[i]
			if op.Start < m.Start || op.Start >= m.End {
				continue
			}
			addr, known := touches[traces.OpID(i)]
			switch name := tr.Text(op.Name); {
			case name == plan.SaveOp:
				saved[addr] = true
			case name == plan.LoadOp && known && !saved[addr]:
				return true
			}
		}
	}
	return false
}

// varies reports whether the steps, which are alike, write tensors of different sizes, for example because
// batches are padded to their longest sequence.
func varies(tr *traces.Trace) bool {
	wrote := written(tr)
	steps := inCommon(tr)
	for _, ops := range steps {
		for i := range min(len(ops), len(steps[0])) {
			if wrote[ops[i]] != wrote[steps[0][i]] {
				return true
			}
		}
	}
	return false
}

// written returns how many bytes each op writes.
func written(tr *traces.Trace) map[traces.OpID]int64 {
	wrote := map[traces.OpID]int64{}
	for i := range tr.Accesses {
		if x := &tr.Accesses[i]; x.Mode == traces.Write {
			wrote[x.Op] += x.Size
		}
	}
	return wrote
}

// optimizes reports whether the i-th op of a step is the optimizer's, or does not exist.
func optimizes(tr *traces.Trace, ops []traces.OpID, i int) bool {
	return i >= len(ops) || tr.Ops[ops[i]].Phase == traces.PhaseOptimizer
}

// named names the i-th op of a step and the module in which it runs.
func named(tr *traces.Trace, ops []traces.OpID, i int) string {
	if i >= len(ops) {
		return "none"
	}
	op := &tr.Ops[ops[i]]
	if module := tr.Text(op.Module); module != "" {
		return tr.Text(op.Name) + " in " + module
	}
	return tr.Text(op.Name)
}

// why says why steps that have these ops in common diverge, and what to change.
func why(tr *traces.Trace, a, b []traces.OpID) string {
	wrote := written(tr)
	for i := range a {
		if x, y := wrote[a[i]], wrote[b[i]]; x != y {
			return ", " + say.OtherShapes.Text(i+1, named(tr, a, i),
				timeline.IEC.Bytes(x), timeline.IEC.Bytes(y))
		}
	}
	return "; " + say.OneKind.Text()
}

// ownOps returns the ops of a step, without loads of what an earlier step saved: a graph may cross from one
// optimizer's step into another's, as in a GAN. Such loads can be told only if that step was described too;
// the process counts them with the step that saved. If both steps saved a tensor, loads of the later one come
// first. Loads that no described step explains belong to a graph that is kept, or to a step before the first;
// rest keeps them.
func ownOps(tr *traces.Trace, step traces.Mark, rest bool) (own []traces.OpID) {
	touches := touchedBy(tr)
	var before map[uint64]int // saved and not yet loaded
	waits := map[uint64]int{}
	for i := range tr.Ops {
		op := &tr.Ops[i]
		if op.Start >= step.End {
			continue
		}
		if before == nil && op.Start >= step.Start {
			before, waits = waits, map[uint64]int{}
		}
		addr, known := touches[traces.OpID(i)]
		switch name := tr.Text(op.Name); {
		case !known:
		case name == plan.SaveOp:
			waits[addr]++
		case name == plan.LoadOp && waits[addr] > 0:
			waits[addr]--
		case name == plan.LoadOp && before[addr] > 0:
			before[addr]--
			continue
		case name == plan.LoadOp && !rest:
			continue
		}
		if op.Start >= step.Start {
			own = append(own, traces.OpID(i))
		}
	}
	return own
}
