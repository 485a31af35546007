package live

import (
	"slices"

	"github.com/gmemtop/gmemtop/managers/plan"
)

// A step that is larger than all that were watched would hold more than the budget, until the plan is made
// again for it. So the process compares what a step saves with the plan, save by save, and while the step is
// ahead of it, further tensors leave, which the plan keeps (sizes.py): those that were saved earlier first,
// the oldest of them before the others, since the backward pass needs them last. Each comes back when it is
// needed. Nobody knows what the step will hold beside what it saves, such as gradients in its backward pass;
// so for each byte that is saved beyond the plan, spillForEach bytes leave.
//
// A process whose steps run different ops has no such rules: its plan leaves room instead (places.go).

// spillForEach is FOR_EACH in sizes.py.
const spillForEach = 2

// spill is the first save of a storage, for steps that are larger than planned for.
type spill struct {
	save    int
	bytes   int64
	release int // the save at which its memory is released if it leaves, -1 if it may not
}

// spillable returns, by the first save of each buffer that the plan keeps and that may leave, between which
// accesses it can be away.
func (e *encoder) spillable() map[int]plan.Gap {
	leaves := map[plan.BufferID]bool{}
	for _, x := range e.pl.Absences {
		leaves[x.Buffer] = true
	}
	out := map[int]plan.Gap{}
	for _, g := range e.p.Gaps(1, 1) {
		if leaves[g.Buffer] || g.Dead {
			continue
		}
		if k := e.firstSave(g.Buffer); k >= 0 {
			if was, ok := out[k]; !ok || g.Before-g.After > was.Before-was.After {
				out[k] = g
			}
		}
	}
	return out
}

// spills returns the first saves of all buffers that the problem knows.
func (e *encoder) spills() []spill {
	var out []spill
	may := e.spillable()
	seen := map[plan.BufferID]bool{}
	for k, b := range e.saved() {
		if b == plan.NoBuffer || seen[b] {
			continue
		}
		seen[b] = true
		s := spill{save: k, bytes: e.p.Buffers[b].Size, release: -1}
		if g, ok := may[k]; ok {
			s.release = e.before(e.saves, g.After+1)
		}
		out = append(out, s)
	}
	return out
}

// spilled returns what leaves beside the plan for p in a larger step q with the same ops.
func spilled(p, q *plan.Problem, of *plan.Plan) ([]plan.Absence, error) {
	if len(of.Absences) == 0 || len(p.Varied) > 0 {
		return nil, nil
	}
	p, err := of.Of(p)
	if err != nil {
		return nil, err
	}
	e := encoder{p: p, pl: of}
	if err := e.number(); err != nil {
		return nil, err
	}
	var out []plan.Absence
	may, saved := e.spillable(), e.saved()
	first := map[int]spill{}
	for _, s := range e.spills() {
		first[s.save] = s
	}
	passes, more := 0, int64(0)
	var stayed []spill // since the backward pass before
	leave := func(s spill, from plan.OpID) {
		g := may[s.save]
		if from = max(from, g.After+1); from >= g.Before {
			return
		}
		out = append(out, plan.Absence{Buffer: g.Buffer, After: g.After, Release: from,
			Fetch: g.Before, Before: g.Before, How: plan.Swap})
		more -= q.Buffers[g.Buffer].Size
	}
	for k := range saved {
		s, known := first[k]
		if known {
			if n := e.placed.saves[k].passes; n != passes { // what was saved before the pass is free
				passes, more, stayed = n, 0, nil
			}
			more += spillForEach * (q.Buffers[saved[k]].Size - s.bytes)
		}
		stayed = slices.DeleteFunc(stayed, func(x spill) bool {
			if more <= 0 || x.release >= k {
				return false
			}
			leave(x, e.position(e.saves[k]))
			return true
		})
		switch {
		case !known || s.release < 0:
		case more > 0:
			leave(s, 0)
		default:
			stayed = append(stayed, s)
		}
	}
	return out, nil
}
