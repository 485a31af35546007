package recompute

import (
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/traces"
)

// When hooks act.
//
// Problem: a plan can move a tensor at any position, but a training only acts when autograd saves a tensor or
// needs one. There a copy starts at the first save, memory is released at a later save or where the outermost
// module ends, and a copy back starts at a load. A plan with other positions predicts something that nobody
// carries out.
//
// Approach: if the recording has saves and loads, swaps move to the moments at which hooks act on them, and
// wait as the streams of a training do: compute waits for the copy out when the memory is released, and the
// copy back waits for the compute issued before it.

// hooked moves a swap to the moments at which hooks carry it out. It returns false if the tensor would have
// to be back before it has left.
func (e *eager) hooked(x *plan.Absence) bool {
	if !e.p.SavesKnown {
		return true
	}
	first, last := e.saved(x)
	// The first load releases whatever was to leave later.
	x.After, x.Release = first, max(min(e.givenBack(x.Release), e.load(first)), last+1)
	x.Fetch = min(max(e.load(x.Fetch), x.Release), x.Before)
	x.Blocking, x.Paced, x.Joined = true, true, 0
	return x.Release <= x.Fetch
}

// saved returns the first op at which autograd saves the bytes that a swap moves, as later saves of the same
// bytes copy nothing, and the last op that touches them before they go.
func (e *eager) saved(x *plan.Absence) (first, last plan.OpID) {
	first = x.After
	for _, t := range e.p.TouchesOf(x.Buffer) {
		if t.Op >= x.Release {
			break
		}
		last = t.Op
		switch {
		case t.Mode.Writes():
			first = x.After
		case e.p.Ops[t.Op].Name == plan.SaveOp:
			first = min(first, t.Op)
		}
	}
	return first, last
}

// givenBack returns the position from which memory is free that a plan releases at a position: the next save
// or load, or the end of the outermost module.
func (e *eager) givenBack(at plan.OpID) plan.OpID {
	for ; int(at) < len(e.p.Ops); at++ {
		op := &e.p.Ops[at]
		switch {
		case op.Name == plan.SaveOp || op.Name == plan.LoadOp:
			return at
		case op.Recorded > 0 && (op.Phase != traces.PhaseForward || op.Module == ""):
			return at
		}
	}
	return at
}

// load returns the position of the next load.
func (e *eager) load(at plan.OpID) plan.OpID {
	for int(at) < len(e.p.Ops) && e.p.Ops[at].Name != plan.LoadOp {
		at++
	}
	return at
}
